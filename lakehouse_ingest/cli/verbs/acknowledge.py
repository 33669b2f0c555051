"""`lakehouse-ingest acknowledge`: rows that were removed on purpose count as lost no more."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lakehouse_ingest.cli.printing import UNKNOWN_STREAM, listed
from lakehouse_ingest.cli.repair import repair
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.acknowledge import Losses, look, ranges_of
from lakehouse_ingest.operations.verify.findings import FindingKind
from lakehouse_ingest.operations.verify.missing_ranges import MissingRange, total
from lakehouse_ingest.printable import many
from lakehouse_ingest.records import TopicPartition
from lakehouse_ingest.settings import Settings

SHOWN = 20  # ranges; all of them are in the JSON


def acknowledge(
    settings: Settings,
    *,
    reason: str = "",
    only: str | None = None,
    offsets: Sequence[str] = (),
    yes: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: whether something is lost that is not acknowledged."""
    wanted, why = ranges_of(offsets), " ".join(reason.split())
    if yes and not why:
        raise SettingsRefused("--yes needs a --reason: later readers of the batch log have to know why")
    looked = partial(look, settings, reason=why, only=only, wanted=wanted)
    return repair(settings, looked, _shown, _plain, yes=yes, jars=jars, as_json=as_json)


def _shown(found: Sequence[Losses]) -> Iterator[RenderableType]:
    for each in found:
        yield Text(f"stream {each.name}", style="bold")
        yield from _of_stream(each)


def _of_stream(losses: Losses) -> Iterator[RenderableType]:
    if losses.verified is None:
        yield Text(UNKNOWN_STREAM)
        return
    if not losses.lost:
        yield Text("Nothing of it is lost, so there is nothing to acknowledge.")
        return
    verdict = losses.verified.verdict
    yield Text(f"{many(losses.lost, 'offset is', 'offsets are')} lost:")
    yield listed([each for each in verdict.findings if each.kind is FindingKind.LOST])
    if more := verdict.unlisted.get(FindingKind.LOST):
        yield Text(f"and {many(more, 'range')} more")
    ranges = [(at, each) for at, of in losses.meant.items() for each in of]
    says = "were acknowledged" if losses.done else "would be acknowledged"
    yield Text(f"{total(losses.meant):,} of them {says} as removed:" if ranges else f"None of them {says}.")
    for at, each in ranges[:SHOWN]:
        yield Text(f"  {_named(at, each)}")
    if len(ranges) > SHOWN:
        yield Text(f"  and {many(len(ranges) - SHOWN, 'range')} more")


def _named(at: TopicPartition, lost: MissingRange) -> str:
    of = "" if lost.is_whole else f"{lost.count:,} of "
    offsets = f"offset {lost.start}" if lost.end == lost.start + 1 else f"offsets {lost.start} to {lost.end - 1}"
    return f"{of}{offsets} of topic {at[0]} partition {at[1]}"


def _plain(found: Sequence[Losses]) -> list[dict[str, Any]]:
    return [
        {
            "stream": each.name,
            "known": each.verified is not None,
            "lost": each.lost,
            "acknowledged": each.acknowledged,
            "ranges": [
                {"topic": at[0], "partition": at[1], "first": lost.start, "last": lost.end - 1, "count": lost.count}
                for at, ranges in each.meant.items()
                for lost in ranges
            ],
        }
        for each in found
    ]
