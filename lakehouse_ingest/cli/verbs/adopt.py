"""`lakehouse-ingest adopt`: go on where another writer of the same tables has ended."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lakehouse_ingest.cli.repair import repair
from lakehouse_ingest.operations.adopt.takeover import AdoptedTable, Adoption, OriginOption, look, look_for_traces
from lakehouse_ingest.printable import many
from lakehouse_ingest.records import TopicPartition
from lakehouse_ingest.settings import Settings

SHOWN = 20  # partitions of a stream; the others are in the JSON


def adopt(
    settings: Settings,
    option: OriginOption,
    *,
    yes: bool = False,
    accept_loss: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: whether it is still to be done. Without an origin, the tables say what may be one."""
    option.refuse_unclear()
    if not option.named:
        traces = partial(look_for_traces, settings)
        return repair(settings, traces, _traces_shown, _traces_plain, yes=yes, jars=jars, as_json=as_json)
    looked = partial(look, settings, option=option, accept_loss=accept_loss)
    return repair(settings, looked, _shown, _plain, yes=yes, jars=jars, as_json=as_json)


def _traces_shown(found: Mapping[str, str]) -> Iterator[RenderableType]:
    yield from (Text(f"{says}.") for says in found.values())


def _traces_plain(found: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"table": name, "found": says} for name, says in found.items()]


def _shown(found: Sequence[Adoption]) -> Iterator[RenderableType]:
    for each in found:
        yield from _of_stream(each)
    taken = [each for each in found if each.origin]
    read = {topic for each in taken for topic in each.logs.topics}
    named = {topic for each in taken if each.origin for topic, _ in each.origin.offsets}
    if others := named - read:
        yield Text(f"Topics of the origin that these streams do not read: {', '.join(sorted(others))}.")
    for says in dict.fromkeys(says for each in taken for says in each.trusted):
        yield Text(f"You answer for it: {says}.", style="yellow")
    if any(each.done for each in taken):
        yield Text("\nDone: the next `run` begins there.")


def _of_stream(adoption: Adoption) -> Iterator[RenderableType]:
    name = (adoption.identity, "bold")
    if adoption.origin is None:
        why = str(adoption.begun) if adoption.begun else "the origin says nothing about its topics"
        yield Text.assemble(name, f": {why}. It is left alone.")
        return
    yield Text.assemble(name, f": {adoption.note}.")
    yield from (Text(_goes_on(adoption, at)) for at in [*adoption.offsets][:SHOWN])
    if (more := len(adoption.offsets) - SHOWN) > 0:
        yield Text(f"  and {many(more, 'partition')} more, see --json")
    yield from (Text(_of_table(each)) for each in adoption.tables)


def _goes_on(adoption: Adoption, at: TopicPartition) -> str:
    offset, low, high = adoption.offsets[at], adoption.low[at], adoption.high[at]
    why = " (not named there: as `source.start` says)" if at in adoption.unnamed else ""
    lost = f", {adoption.lost[at][0]} to {offset - 1} are lost" if at in adoption.lost else ""
    holds = f"holds {low} to {high - 1}" if low < high else "is empty"
    return f"  topic {at[0]} partition {at[1]}, which {holds}: from {offset} on{why}{lost}"


def _of_table(table: AdoptedTable) -> str:
    if not table.state:
        return f"  table {table.name} is not there: the first records create it"
    adds = f"; the first run adds {', '.join(table.adds)}" if table.adds else ""
    return f"  table {table.name} is there, and taken as it is{adds}"


def _plain(found: Sequence[Adoption]) -> list[dict[str, Any]]:
    return [
        {
            "pipeline": each.identity,
            "origin": each.origin.says if each.origin else None,
            "begun": str(each.begun) if each.begun else None,
            "trusted": [*each.trusted],
            "partitions": [_partition(each, at) for at in each.offsets],
            "tables": [
                {"table": table.name, "there": table.state is not None, "adds": [*table.adds]} for table in each.tables
            ],
            "done": each.done,
        }
        for each in found
    ]


def _partition(adoption: Adoption, at: TopicPartition) -> dict[str, Any]:
    offset, lost = adoption.offsets[at], adoption.lost
    return {
        "topic": at[0],
        "partition": at[1],
        "offset": offset,
        "named": at not in adoption.unnamed,
        "lost": offset - lost[at][0] if at in lost else 0,
        "first": adoption.low[at],
        "end": adoption.high[at],
    }
