"""Where a peer leaves the events, as a reader finds them: a table behind the catalog, or a folder of Parquet files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.benchmarks.systems import NUMBER, Commit, CountIsWrong, Surroundings, Written


class Target(Protocol):
    def rows(self) -> int: ...

    def written(self) -> Written: ...

    def commits(self) -> Sequence[Commit]: ...

    def check(self, count: int) -> None:
        """Every event is there exactly once, or CountIsWrong."""


class IcebergTable:
    def __init__(self, here: Surroundings, name: str) -> None:
        self._name = (here.namespace, name)
        self._catalog = RestCatalog("bench", uri=here.catalog_uri, token=here.token)

    def rows(self) -> int:
        return self._total("records")

    def written(self) -> Written:
        return Written(self._total("data-files"), self._total("files-size"))

    def commits(self) -> Sequence[Commit]:
        table = self._table()
        return [
            Commit(each.timestamp_ms / 1000, int(each.summary["added-records"] or 0))
            for each in (table.snapshots() if table else ())
            if each.summary
        ]

    def check(self, count: int) -> None:
        table = self._table()
        each_once(
            table.scan(selected_fields=(NUMBER,)).to_arrow()[NUMBER] if table else pa.chunked_array([], "int64"), count
        )

    def _table(self) -> Table | None:
        try:
            table: Table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        return table

    def _total(self, what: str) -> int:
        table = self._table()
        snapshot = table.current_snapshot() if table else None
        return int(snapshot.summary[f"total-{what}"] or 0) if snapshot and snapshot.summary else 0


@dataclass
class ParquetFolder:
    """Of systems without a catalog: whatever is complete counts."""

    folder: Path
    _rows: dict[Path, int] = field(default_factory=dict)

    def rows(self) -> int:
        for file in {*self.folder.rglob("*.parquet")} - self._rows.keys():
            try:
                self._rows[file] = pq.read_metadata(file).num_rows
            except (pa.ArrowInvalid, FileNotFoundError):  # it is still being written
                continue
        return sum(self._rows.values())

    def written(self) -> Written:
        files = [*self.folder.rglob("*.parquet")]
        return Written(len(files), sum(file.stat().st_size for file in files))

    def commits(self) -> Sequence[Commit]:
        return ()

    def check(self, count: int) -> None:
        files = sorted(self.folder.rglob("*.parquet"))
        # As a file, not as a dataset, which would read partitions out of the path.
        chunks = [chunk for file in files for chunk in pq.ParquetFile(file).read(columns=[NUMBER])[NUMBER].chunks]
        each_once(pa.chunked_array(chunks, "int64"), count)


def each_once(numbers: pa.ChunkedArray, count: int) -> None:
    """The numbers from 0 to count - 1, each once."""
    found, distinct = len(numbers), pc.count_distinct(numbers).as_py()
    bounds = pc.min_max(numbers).as_py()
    if (found, distinct, bounds["min"], bounds["max"]) != (count, count, 0, count - 1):
        raise CountIsWrong(
            f"{found} rows with {distinct} different numbers from {bounds['min']} to {bounds['max']}"
            f" were written of {count} events"
        )
