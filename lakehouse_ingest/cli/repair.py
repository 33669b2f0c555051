"""The frame of the verbs that repair: look, show what would be done, do it if a person says so.

`recover`, `adopt`, `acknowledge` and `promote` differ in what they look up, and in the words they show it with.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import RenderableType

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.operations.proposal import Found, Proposal
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables.catalog_address import catalog_at

UNANSWERED = 3  # the exit code while something is left that a person has to decide


def repair(
    settings: Settings,
    look: Callable[[str], Proposal[Found]],
    shown: Callable[[Found], Iterable[RenderableType]],
    plain: Callable[[Found], object],
    *,
    yes: bool,
    jars: Path | None,
    as_json: bool,
) -> int:
    """The exit code. `look` is given the address of the catalog; `shown` is for people, `plain` for machines."""
    with catalog_at(settings, jars) as uri:
        proposal = look(uri)
        apply = proposal.apply if yes else None
        if apply:
            proposal = apply()
    if as_json:
        say(json.dumps(plain(proposal.found), indent=2))
    else:
        console = Terminal(soft_wrap=True)
        console.print(*shown(proposal.found), sep="\n")
        if not apply and (proposal.apply or proposal.pending):
            console.print(f"\nNothing has been changed. {proposal.says}")
    return UNANSWERED if proposal.pending else 0
