"""A topic in memory, and a catalog in a file: what a pipeline needs, without a server."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement, TableUpdate

from lakehouse_ingest.records import Offsets, SourceIdentity
from lakehouse_ingest.stages.records import Records, Share
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.readers import Coordinates, Reader
from tests.stages.given import Value
from tests.stages.making import records_of

TOPIC, PARTITIONS = "events", 2
HOLE = "hole"  # an offset that no reader gets: of an aborted transaction, or a transaction's own mark
A_CHUNK = 3  # records that a task gets at a time


@dataclass(frozen=True)
class MemoryReader:
    """What tasks get of a topic."""

    log: Mapping[tuple[str, int], Sequence[Value]]

    def read(self, share: Share) -> Iterator[Records]:
        values = self.log[share.topic, share.partition]
        held = [offset for offset in range(share.start, share.end) if values[offset] != HOLE]
        for at in range(0, len(held), A_CHUNK):
            offsets = held[at : at + A_CHUNK]
            chunk = [_bytes(values[offset]) for offset in offsets]
            yield records_of(chunk, topic=share.topic, partition=share.partition, offsets=offsets, log=share.log)

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        for share in shares:
            yield from self.read(share)


class Topic(Kafka):
    """A topic in memory, with what a start asks of a source."""

    def __init__(self) -> None:
        self.log: dict[tuple[str, int], list[Value]] = {(TOPIC, number): [] for number in range(PARTITIONS)}

    def produce(self, values: Sequence[Value]) -> None:
        for value in values:
            min(self.log.values(), key=len).append(value)

    def identity(self) -> SourceIdentity:
        return SourceIdentity("memory", {TOPIC: "1"})

    def bounds(self) -> tuple[Offsets, Offsets]:
        return dict.fromkeys(self.log, 0), self.ends()

    def ends(self) -> Offsets:
        return {at: len(values) for at, values in self.log.items()}

    def publish(self, offsets: Offsets, group: str) -> None:
        pass

    def reader(self, group: str, epoch: int) -> MemoryReader:  # type: ignore[override]  # the other one is Kafka's
        del group, epoch
        return MemoryReader(self.log)

    def records(self) -> Iterator[tuple[tuple[str, int], int, Value]]:
        for at, values in self.log.items():
            yield from ((at, offset, value) for offset, value in enumerate(values) if value != HOLE)

    def places(self) -> Coordinates:
        return Counter((*at, offset) for at, offset, _ in self.records())


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class FileCatalog(SqlCatalog):
    """A catalog that is no server. Other than pyiceberg's own, it takes a branch of a table without snapshots."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if not self.load_table(table.name()).metadata.snapshots:
            requirements = tuple(each for each in requirements if not _is_of_no_branch(each))
        return super().commit_table(table, requirements, updates)


def _is_of_no_branch(requirement: TableRequirement) -> bool:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is None


class TablesReader(Reader):
    """The tables of a catalog that is no server."""

    def __init__(self, there: SqlCatalog, namespace: str) -> None:
        self.catalog, self.namespace = there, namespace
