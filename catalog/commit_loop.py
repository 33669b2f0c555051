"""Changing a table while others change it too: load, decide, commit, and look again if the commit failed.

A failure alone does not tell whether the commit took effect. An answer can get lost, and a proxy that repeats a request
passes on the refusal of the second one. So both kinds of failure are treated alike: the table is loaded again, and
`landed` finds out from its state whether one of our commits is in it. Only if none is, another commit is tried.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyiceberg.table import Table

from catalog.commits import Requirements, Updates, commit
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import Conflict, OutcomeUnknown, RequestRefused
from catalog.retries import FEW, LookAgain, look_until_settled
from catalog.specs import TableState


@dataclass(frozen=True)
class ProposedCommit:
    """A commit to try."""

    requirements: Requirements
    updates: Updates
    snapshot: int | None = None  # the one that it adds
    refusal: type[RequestRefused] = RequestRefused  # what it means when the catalog refuses such a commit as wrong


Attempt = Callable[[Table, TableState], ProposedCommit | None]
"""Makes a commit for the table as it is now; None if nothing is left to do.

What it raises ends the loop, except for LookAgain: that counts as a refused commit.
"""
Landed = Callable[[TableState, Collection[int]], bool]
"""Whether one of our commits took effect; gets the snapshots of all that were tried so far, in their order."""
Refusal = Callable[[int, Exception], None]
"""Gets the number and the failure of each try that another one follows; what it raises ends the loop."""


def nothing_to_find(_state: TableState, _ours: Collection[int]) -> bool:
    """For changes that are the same done twice: `attempt` sees that nothing is left to do."""
    return False


def commit_loop(
    client: CatalogClient,
    name: str,
    what: str,
    attempt: Attempt,
    landed: Landed = nothing_to_find,
    *,
    tries: int = FEW,
    refused: Refusal | None = None,
) -> TableState:
    """Commit what `attempt` makes of the table, and give the table as it is afterwards.

    `landed` is asked each time before `attempt`. When all tries have failed, the last failure is raised.
    """
    ours: list[int] = []

    def once() -> TableState:
        table = client.table(name)
        state = state_of(table)
        if landed(state, ours):
            return state
        proposal = attempt(table, state)
        if proposal is None:
            return state
        if proposal.snapshot is not None:
            ours.append(proposal.snapshot)
        try:
            return commit(client, table, what, proposal.requirements, proposal.updates)
        except (Conflict, OutcomeUnknown) as failure:
            raise LookAgain(failure) from failure
        except RequestRefused as refusal:
            if isinstance(refusal, proposal.refusal):
                raise
            raise proposal.refusal(str(refusal)) from refusal

    return look_until_settled(once, tries, refused)
