"""Sources in Arrow: what a task reads."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from lakehouse_ingest.stages.arrow.records import Records, Share


@runtime_checkable
class Reader(Protocol):
    """Describes how a task reads a source. It is pickled with the task, so it holds no client.

    It raises `TryAgain` for an outage, and `SettingsRefused` for what a person must fix. Then the share counts as not
    read. If it ends without an error, then every record of the share was given once.
    """

    def read(self, share: Share) -> Iterator[Records]:
        """The records of one share, in the order of their offsets."""

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        """The records of several shares. Those of one partition come in the order of their offsets."""
