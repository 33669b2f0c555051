"""Files of a task: when they end, how many are open, and what is safe when."""

import errno
import math
import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder

from catalog import Unreachable
from catalog.data_files import FileNames
from catalog.errors import RequestRefused
from catalog.file_writer import FileWriter
from tests.unit.catalog_package.written_files import (
    NAMES,
    Lake,
    batch,
    files_in,
    lake,
    path_of,
    read_back,
    write,
)

__all__ = ["lake"]  # a fixture


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


class TestWriter:
    def test_makes_one_file_of_many_chunks(self, lake: Lake) -> None:
        table = lake.create({"n": "long"})
        (receipt,) = write(table, *(batch(n=[n]) for n in range(100)))
        footer = pq.read_metadata(path_of(receipt))
        assert (receipt.record_count, footer.num_rows, footer.num_row_groups) == (100, 100, 1)
        assert receipt.size == path_of(receipt).stat().st_size
        assert sum(receipt.column_sizes.values()) <= receipt.size
        assert FileNames.of(receipt.path) == NAMES

    def test_begins_another_file_at_the_target_size(self, lake: Lake) -> None:
        table = lake.create({"s": "string"}, properties={"write.target-file-size-bytes": "20000"})
        chunks = [batch(s=[uuid.uuid4().hex for _ in range(100)]) for _ in range(50)]
        receipts = write(table, *chunks)
        assert sum(receipt.record_count for receipt in receipts) == 5000
        assert len({receipt.path for receipt in receipts}) == len(receipts) > 3
        assert max(receipt.size for receipt in receipts) < 2 * 20_000 + 5_000
        assert len(read_back(lake, receipts)) == 5000

    def test_holds_no_more_than_its_budget(self, lake: Lake) -> None:
        table = lake.create({"n": "long"}, ["bucket(8, n)"])
        writer = FileWriter(table, NAMES, budget=200_000)
        for chunk in range(40):
            writer.write(batch(n=[*range(chunk * 1000, chunk * 1000 + 1000)]))
            assert writer._waiting_bytes < 200_000
        receipts = writer.close()
        assert len(receipts) == 8  # they stay open between two row groups
        assert sum(receipt.record_count for receipt in receipts) == 40_000
        assert min(len(receipt.split_offsets) for receipt in receipts) > 3

    def test_keeps_only_so_many_files_open(self, lake: Lake) -> None:
        table = lake.create({"n": "long"}, ["n"])
        before, most = open_files(), 0
        writer = FileWriter(table, NAMES, budget=100_000, open_files=4)
        for _ in range(20):
            writer.write(batch(n=[*range(50)]))
            most = max(most, open_files() - before)
        receipts = writer.close()
        assert most <= 5
        assert sum(receipt.record_count for receipt in receipts) == 1000
        assert {receipt.partition for receipt in receipts} == {(n,) for n in range(50)}
        assert len(receipts) > 50
        assert len(read_back(lake, receipts)) == 1000

    def test_sorts_rows_by_the_tables_order(self, lake: Lake) -> None:
        table = lake.create({"s": "string", "d": "double"}, order=["s", "d desc"])
        given = [("b", 1.0), (None, 0.0), ("a", math.nan), ("a", None), ("a", 5.0), ("b", 2.0)]
        (receipt,) = write(table, *(batch(s=pa.array([s]), d=pa.array([d], pa.float64())) for s, d in given))
        found = [tuple(row.values()) for row in pq.read_table(path_of(receipt)).to_pylist()]
        order = table.order.fields
        assert [each.null_order for each in order] == [NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST]
        assert [*map(str, found)] == [
            "(None, 0.0)",
            "('a', nan)",
            "('a', 5.0)",
            "('a', None)",
            "('b', 2.0)",
            "('b', 1.0)",
        ]
        assert receipt.sort_order_id == table.order.order_id

    def test_calls_a_file_of_several_sorted_parts_unsorted(self, lake: Lake) -> None:
        table = lake.create({"n": "long"}, order=["n"])
        (receipt,) = write(table, batch(n=[3, 1]), batch(n=[2, 0]), budget=1)
        assert pq.read_table(path_of(receipt))["n"].to_pylist() == [1, 3, 0, 2]
        assert receipt.sort_order_id is None

    def test_is_of_no_use_once_closed(self, lake: Lake) -> None:
        writer = FileWriter(lake.create({"n": "long"}), NAMES)
        assert writer.close() == []
        with pytest.raises(ValueError, match="closed"):
            writer.write(batch(n=[1]))
        with pytest.raises(ValueError, match="closed"):
            writer.close()

    def test_keeps_rows_after_some_were_refused(self, lake: Lake) -> None:
        writer = FileWriter(lake.create({"n": "long"}), NAMES)
        writer.write(batch(n=[1]))
        with pytest.raises(RequestRefused):
            writer.write(batch(x=[1]))
        assert [receipt.record_count for receipt in writer.close()] == [1]


class TestAbandonedWriter:
    @pytest.mark.parametrize("closed", [True, False])
    def test_leaves_no_file(self, lake: Lake, tmp_path: Path, *, closed: bool) -> None:
        kept = write(lake.create({"n": "long"}, ["n"]), batch(n=[1]))
        writer = FileWriter(lake.describe(), NAMES, budget=1)
        writer.write(batch(n=[1, 2, 3]))
        if closed:
            writer.close()
        assert len(files_in(tmp_path)) == 4
        writer.abandon()
        del writer
        assert files_in(tmp_path) == [path_of(receipt) for receipt in kept]

    def test_says_nothing_if_files_cannot_be_deleted(self, lake: Lake, tmp_path: Path) -> None:
        writer = FileWriter(lake.create({"n": "long"}), NAMES, budget=1)
        writer.write(batch(n=[1]))
        for path in files_in(tmp_path):
            path.unlink()
        writer.abandon()


class TestLocalFile:
    def test_is_never_written_over(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        table = lake.create({"n": "long"})
        monkeypatch.setattr(FileNames, "stem", lambda _: "same")
        (first,) = write(table, batch(n=[1]))
        with pytest.raises(Unreachable, match="File exists"):
            write(table, batch(n=[2]))
        assert pq.read_table(path_of(first))["n"].to_pylist() == [1]

    def test_and_its_folders_are_on_disk_once_closed(
        self, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = lake.create({"n": "long"}, ["n"])
        synced: list[Path] = []
        real = os.fsync

        def fsync(opened: int) -> None:
            synced.append(Path(f"/proc/self/fd/{opened}").readlink())
            real(opened)

        monkeypatch.setattr(os, "fsync", fsync)
        receipts = write(table, batch(n=[1, 2]))
        data = tmp_path / "ns" / "t" / "data"
        assert {*synced} == {
            *(path_of(receipt) for receipt in receipts),
            *(data / "n=1", data / "n=2", data, data.parent),
        }
        assert len(synced) == 6
        synced.clear()
        write(table, batch(n=[3]), durable=False)
        assert synced == []

    def test_that_broke_off_gets_no_receipt(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = FileWriter(lake.create({"n": "long"}, ["n"]), NAMES, budget=1)
        writer.write(batch(n=[1]))

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr("catalog.file_writer.create", full)
            with pytest.raises(Unreachable):
                writer.write(batch(n=[2]))
        for call in (writer.close, lambda: writer.write(batch(n=[2]))):
            with pytest.raises(ValueError, match="broke off"):
                call()
        writer.abandon()

    def test_that_cannot_be_written_is_an_outage(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        table = lake.create({"n": "long"})

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("catalog.file_writer.create", full)
        with pytest.raises(Unreachable, match=r"writing files of table ns.t: .*No space left"):
            write(table, batch(n=[1]))


class TestFileOfAnotherStore:
    def test_is_written_through_its_file_io(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        table = lake.create({"n": "long"}, ["n"])
        for module in ("file_sinks", "file_writer"):
            monkeypatch.setattr(f"catalog.{module}.local_path", lambda _: None)
        receipts = write(table, batch(n=[1, 2, 2]))
        assert [receipt.size for receipt in receipts] == [path_of(receipt).stat().st_size for receipt in receipts]
        assert len(read_back(lake, receipts)) == 3
        monkeypatch.setattr(FileNames, "stem", lambda _: path_of(receipts[0]).stem.removesuffix("-00000"))
        with pytest.raises(Unreachable, match="already exists"):
            write(table, batch(n=[1, 2]))
