"""Consumer groups of other programs. A source need not have them."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from lakehouse_ingest.records import Offsets


@runtime_checkable
class Grouped(Protocol):
    """A source that other programs may read with consumer groups."""

    def members(self, group: str) -> int:
        """How many members the group has now."""

    def committed(self, group: str) -> Offsets:
        """The next offsets to read, for partitions of which the group has committed one."""

    def values_from(self, start: Offsets, group: str) -> Iterator[bytes]:
        """The values of the records from `start` to the end, without open and aborted transactions."""
