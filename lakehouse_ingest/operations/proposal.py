"""What a person may have done to a stream or a table: looked up, shown, and applied only if the person says so."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True)
class Proposal(Generic[Found]):
    """Making one changes nothing. `apply` does what is proposed, and gives the proposal that is left after it."""

    found: Found
    pending: bool = False  # whether something is left that a person has to decide
    says: str = ""  # how a person goes on
    apply: "Callable[[], Proposal[Found]] | None" = None  # None: there is nothing to do
