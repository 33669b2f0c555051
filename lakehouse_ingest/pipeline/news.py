"""What records bring that the plan of their table does not cover."""

from dataclasses import dataclass, field

from lakehouse_ingest.schema.seen import Seen, SeenFields
from lakehouse_ingest.stages.arrow.records import Tree
from collections.abc import Collection, Mapping


@dataclass
class News:
    """The fields of the records with news of one route. A task collects it, and the driver merges it."""

    seen: SeenFields = field(default_factory=SeenFields)
    lacking: set[str] = field(default_factory=set)  # required fields that may become optional, and a record lacks them
    records: int = 0

    @property
    def fields(self) -> Mapping[str, Seen]:
        return self.seen.fields

    def add(self, record: Tree, relaxing: Collection[str] = ()) -> None:
        self.seen.add(record)
        self.lacking |= {name for name in relaxing if record.get(name) is None}
        self.records += 1

    def merge(self, other: "News") -> None:
        self.seen.merge(other.seen)
        self.lacking |= other.lacking
        self.records += other.records
