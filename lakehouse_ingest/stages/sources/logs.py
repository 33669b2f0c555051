"""Finds out whether a topic has records at certain offsets, long after they were read, for a reader of our isolation.

A source need not offer this. Without it, `verify` can't distinguish an offset gap from a loss.
"""

from collections.abc import Iterator
from typing import Protocol, Self, runtime_checkable

from lakehouse_ingest.records import TopicPartition


class Log(Protocol):
    """A log to look at again. Callers ask in the order of a partition's offsets."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def between(self, at: TopicPartition, first: int, last: int) -> Iterator[int]:
        """The offsets of the records from `first` to `last`, inclusive. Raises TryAgain if nobody answers."""


@runtime_checkable
class Logged(Protocol):
    """A source whose records can be looked at again."""

    def looking_back(self, group: str) -> Log: ...
