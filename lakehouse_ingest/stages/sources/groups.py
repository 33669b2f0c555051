"""Consumer groups of others: a source need not have any."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from lakehouse_ingest.records import Offsets


@runtime_checkable
class Grouped(Protocol):
    """A source that others may read by consumer groups."""

    def members(self, group: str) -> int:
        """How many read with it now."""

    def committed(self, group: str) -> Offsets:
        """Of the source's topics the next offsets to read, where the group has committed one."""

    def values_from(self, start: Offsets, group: str) -> Iterator[bytes]:
        """The records from there to the end, without those of open and aborted transactions."""
