"""The marks of one stream: how far its tables say that it has come."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.table_heads import TableHeads
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.tables import Pinned


@dataclass(frozen=True)
class StreamMarks:
    """The marks that a stream has left in the history of main."""

    batch_log: Sequence[Mark]
    tables: Sequence[Mark]

    @classmethod
    def of(cls, there: TableHeads, pipeline: str) -> "StreamMarks":
        return cls([*_marks_in([there.batch_log], pipeline)], [*_marks_in(there.there, pipeline)])

    @property
    def all(self) -> list[Mark]:
        return [*self.batch_log, *self.tables]

    @property
    def generation(self) -> int:
        return max((mark.token.generation for mark in self.all), default=0)

    def complete(self) -> Offsets:
        """As far as the batch log was written. A table may have more rows, but their outcomes are not written yet.

        The batch log gets its mark after all tables have theirs, so its `next` is complete as well.
        """
        batch_log = [mark.held() for mark in self.batch_log if mark.token.generation == self.generation]
        tables = [mark.complete for mark in self.tables if mark.token.generation == self.generation]
        return ledger.highest(batch_log or tables)

    def logs(self) -> dict[str, set[str]]:
        """The present log of each topic, as the rows name it. It has two names if its id was not known at first."""
        found: dict[str, tuple[int, set[str]]] = {}
        for mark in self.all:
            generation = mark.token.generation
            for topic in mark.source.topics:
                newest, names = found.get(topic, (-1, set()))
                if generation >= newest:
                    names = names if generation == newest else set()
                    found[topic] = (generation, names | {mark.source.log(topic)})
        return {topic: names for topic, (_, names) in found.items()}

    def of_logs(self, logs: Mapping[str, Collection[str]], choose: Callable[[Mark], Offsets]) -> Iterator[Offsets]:
        """The chosen offsets of every mark, as far as they belong to these logs."""
        for mark in self.all:
            same = {topic for topic in mark.source.topics if mark.source.log(topic) in logs[topic]}
            yield {at: offset for at, offset in choose(mark).items() if at[0] in same}

    def generations(self, logs: Mapping[str, Collection[str]], older: Collection[str]) -> dict[str, int]:
        """The first generation of each topic's present log, for topics that had another log before."""
        found: dict[str, int] = {}
        for mark in self.all:
            for topic in mark.source.topics:
                if mark.source.log(topic) in logs[topic]:
                    found[topic] = min(mark.token.generation, found.get(topic, mark.token.generation))
        changed = {
            topic for mark in self.all for topic in mark.source.topics if mark.source.log(topic) not in logs[topic]
        }
        return {topic: generation for topic, generation in found.items() if topic in changed or topic in older}


def _marks_in(pins: Iterable[Pinned | None], pipeline: str) -> Iterator[Mark]:
    for pinned in pins:
        for snapshot in pinned.state.ancestors() if pinned else ():
            if mark := ledger.from_summary(snapshot.summary, pipeline):
                yield mark
