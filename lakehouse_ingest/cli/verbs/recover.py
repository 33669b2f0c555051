"""`lakehouse-ingest recover`: what keeps a pipeline from starting, and what can be done about it."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lakehouse_ingest.cli.repair import repair
from lakehouse_ingest.operations.recover import Recovery, found_of, look
from lakehouse_ingest.records import Choice
from lakehouse_ingest.settings import Settings


def recover(
    settings: Settings,
    *,
    choice: Choice | None = None,
    only: str | None = None,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code. Without a choice nothing is changed."""
    looked = partial(look, settings, choice=choice, only=only)
    return repair(settings, looked, _shown, _plain, yes=choice is not None, jars=jars, as_json=as_json)


def _shown(found: Sequence[Recovery]) -> Iterator[RenderableType]:
    for each in found:
        yield Text.assemble((each.identity, "bold"), f": {_headline(each)}")
        for number, blocker in enumerate(each.blockers, 1):
            yield Text(f"\n{number}. {found_of(blocker)}.", style="yellow")
            if answer := each.done.get(str(blocker.error)):
                yield Text(f"   done: {answer.says}.", style="green")
                continue
            for choice, possible in blocker.choices.items():
                yield Text(f"   --choose {choice:7} {possible.says}")


def _headline(recovery: Recovery) -> str:
    if not recovery.places:
        return "nothing has been committed yet, so there is nothing to recover."
    if not recovery.blockers:
        return "nothing keeps it from starting."
    return f"{recovery.left} of {len(recovery.blockers)} blockers keep it from starting."


def _plain(found: Sequence[Recovery]) -> list[dict[str, Any]]:
    return [
        {
            "pipeline": each.identity,
            "generation": each.generation,
            "questions": [
                {
                    "about": blocker.about,
                    "found": str(blocker.error),
                    "choices": {str(choice): answer.says for choice, answer in blocker.choices.items()},
                    "done": each.done[str(blocker.error)].says if str(blocker.error) in each.done else None,
                }
                for blocker in each.blockers
            ],
        }
        for each in found
    ]
