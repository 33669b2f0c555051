"""`lakehouse-ingest verify` opens no file that it need not, each of the others once, and holds few rows at a time."""

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Column, HeadFile, Pinned, PipelineTables, TableSpec
from tests.services.doors import connection_to
from tests.services.ingesting import Bench
from tests.services.readers import local
from tests.services.verdicts import Landed, verdict_on

pytestmark = pytest.mark.live


def directly_filled(bench: Bench, settings: Settings, rows: int) -> None:
    """As a pipeline would have left it, twelve partitions in files of some ten thousand rows."""
    (topic,) = settings.streams[0].topics
    namespace, name, partitions = settings.catalog.namespace, settings.name, 12
    source = "struct<topic: string, partition: int, offset: long, index: int>"
    lake = PipelineTables(connection_to(bench.uri), name)
    lake.ensure_namespace(namespace)
    small = {"write.target-file-size-bytes": str(400_000)}
    lake.create(TableSpec(f"{namespace}.events", (Column("n", "long"), Column("_source", source)), properties=small))
    table = bench.table(f"{namespace}.events")
    places = [
        pa.array([topic] * rows),
        pa.array([n % partitions for n in range(rows)], pa.int32()),
        pa.array([n // partitions for n in range(rows)], pa.int64()),
        pa.array([0] * rows, pa.int32()),
    ]
    coordinates = pa.StructArray.from_arrays(places, ["topic", "partition", "offset", "index"])
    following = {(topic, number): len(range(number, rows, partitions)) for number in range(partitions)}
    begin = dict.fromkeys(following, 0)
    mark = Mark(Token(name, 1, 1, 0), SourceIdentity("", {topic: ""}), begin, following, following)
    table.append(
        pa.table({"n": pa.array(range(rows), pa.int64()), "_source": coordinates}),
        snapshot_properties=marks.to_summary(mark, {}),
    )
    assert len(table.inspect.files()) > rows // 30_000


class TestVerify:
    def test_reads_each_file_once_unless_it_may_hold_duplicates(
        self, bench: Bench, filled: Landed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only files that may hold duplicates are opened again, to say which ones they are."""
        settings, table = filled.settings, bench.table(filled.name())
        table.append(table.scan("n == 3 or n == 17").to_arrow())
        table.delete("n == 9 or n == 10")
        opened: Counter[str] = Counter()
        batches_of = PipelineTables.batches_of

        def counting(
            lake: PipelineTables, pinned: Pinned, file: HeadFile, columns: Sequence[str]
        ) -> Iterator[pa.RecordBatch]:
            opened[file.path] += 1
            return batches_of(lake, pinned, file, columns)

        monkeypatch.setattr(PipelineTables, "batches_of", counting)
        whole = verdict_on(settings)
        assert (whole.duplicates, whole.lost) == (2, 2)
        assert max(opened.values()) == 2
        opened.clear()
        table.delete("n == 3 or n == 17")
        assert verdict_on(settings).duplicates == 0
        assert set(opened.values()) == {1}

    def test_needs_no_more_memory_for_more_rows(self, bench: Bench, topic: str) -> None:
        """Five times the rows, in five times the files."""
        peaks = {}
        for rows in (200_000, 1_000_000):
            settings = bench.settings(f"{topic}_{rows}")
            directly_filled(bench, settings, rows)
            began = time.perf_counter()
            assert verdict_on(settings).code == PROVEN
            seconds = time.perf_counter() - began
            pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
            pa.set_memory_pool(pool)
            tracemalloc.start()
            try:
                verdict = verdict_on(settings)
                peaks[rows] = tracemalloc.get_traced_memory()[1] + pool.max_memory()
            finally:
                tracemalloc.stop()
                pa.set_memory_pool(before)
            assert (verdict.code, verdict.offsets, sum(verdict.tables.values())) == (PROVEN, rows, rows)
            print(f"{rows:,} rows: {seconds:.1f} s, {peaks[rows] / 2**20:.1f} MiB")
        assert peaks[1_000_000] < 1.5 * peaks[200_000]

    def test_knows_the_offsets_of_each_file_from_the_manifests(self, bench: Bench, filled: Landed) -> None:
        """The manifests have bounds for fields within structs as well."""
        lake = PipelineTables(connection_to(bench.uri), "tests")
        pinned = lake.pin(filled.name())
        assert pinned
        files = lake.files_of(pinned, ("_source.partition", "_source.offset"))
        assert sorted(file.bounds["_source.offset"] for file in files) == [(0, 9), (10, 19)]
        assert all(lake.has_file(pinned, file.path) for file in files)
        assert Path(local(files[0].path)).exists()
