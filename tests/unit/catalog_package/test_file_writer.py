"""Files of a task: their names and schema, how rows are fitted, when files end, and what is safe when."""

import errno
import math
import os
import pickle
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder

from catalog import Column, TableSpec, Unreachable, apply, plan
from catalog.data_files import DataFileReceipt, FileNames, TableFiles
from catalog.errors import RequestRefused
from catalog.file_columns import file_columns, plain
from catalog.file_rows import read_rows
from catalog.file_settings import FileSettings
from catalog.file_writer import FileWriter
from tests.unit.catalog_package.written_files import NAMES, Lake, batch, write


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def path_of(receipt: DataFileReceipt) -> Path:
    return Path(urlparse(receipt.path).path)


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def files_in(folder: Path) -> list[Path]:
    return [*folder.rglob("*.parquet")]


def nullable(kind: pa.DataType) -> pa.DataType:
    """The same type, with nothing in it required; Arrow makes no uuid within a struct of Python's."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, nullable(field.type)) for field in kind.fields])
    return pa.binary(16) if kind == pa.uuid() else kind


def read_back(lake: Lake, receipts: list[DataFileReceipt]) -> list[dict[str, Any]]:
    table = lake.commit(receipts)
    return [row for task in table.scan().plan_files() for row in read_rows(table, task, table.schema()).to_pylist()]


class TestFileNames:
    @pytest.mark.parametrize(
        "pipeline", ["sensors", "a-e1-b2", "größe/ä b%2F", "e7-b1-s1-a1-0123456789abcdef-00000.parquet"]
    )
    @pytest.mark.parametrize("share", [3, -1])  # the driver's own are written for no share
    def test_are_read_back(self, pipeline: str, share: int) -> None:
        names = FileNames(pipeline, 7, 42, share, 1)
        assert FileNames.of(f"s3://bucket/data/day=1/{names.stem()}-00012.parquet") == names

    @pytest.mark.parametrize(
        "path", ["", "data/00000-0-4f1d.parquet", "x-e7-b42-s3-a0-00.parquet", "s3://b/e7-b1/x.parquet"]
    )
    def test_of_others_are_told_from_ours(self, path: str) -> None:
        assert FileNames.of(path) is None

    def test_never_repeat(self) -> None:
        assert len({NAMES.stem() for _ in range(100)}) == 100
        assert NAMES.stem() != pickle.loads(pickle.dumps(NAMES)).stem()


class TestTableFiles:
    def test_hides_credentials(self, lake: Lake) -> None:
        table = replace(lake.create({"v": "long"}), io_properties={"s3.secret-access-key": "hush-hush"})
        assert "hush-hush" not in repr(table)

    def test_passes_no_code_of_the_table_on(self, lake: Lake) -> None:
        lake.create({"v": "long"})
        table = lake.table()
        table.io.properties["py-io-impl"] = "evil.Code"
        assert "py-io-impl" not in TableFiles.of(lake.client, table).io_properties

    def test_takes_no_values_but_text(self, lake: Lake) -> None:
        lake.create({"v": "long"})
        table = lake.table()
        table.io.properties["ssl"] = {"cabundle": "x"}
        lake.pyiceberg.properties["ssl"] = {"cabundle": "x"}
        assert "ssl" not in TableFiles.of(lake.client, table).io_properties


class TestParquetSchema:
    def test_has_field_ids_and_physical_types_of_iceberg(self, lake: Lake) -> None:
        columns = {
            "i": "int",
            "l": "long",
            "f": "float",
            "d": "double",
            "o": "boolean",
            "s": "string",
            "b": "binary",
            "day": "date",
            "t": "time",
            "ts": "timestamp",
            "tz": "timestamptz",
            "u": "uuid",
            "x": "fixed[3]",
            "d9": "decimal(9,2)",
            "d18": "decimal(18,2)",
            "d19": "decimal(19,2)",
            "n": "struct<a: required long, b: list<struct<c: string>>>",
            "m": "map<string, list<int>>",
        }
        table = lake.create(columns, required=["l"])
        rows = pa.RecordBatch.from_pylist(
            [dict.fromkeys(columns) | {"l": 1, "u": b"u" * 16}], schema=file_columns(table.schema_json).arrow
        )
        (receipt,) = write(table, rows)
        schema = pq.read_metadata(path_of(receipt)).schema
        described = str(schema).partition("{")[2]
        ids = {leaf.in_file: leaf.field_id for leaf in file_columns(table.schema_json).leaves}
        found = {schema.column(at).path: schema.column(at) for at in range(len(schema))}
        assert found.keys() == ids.keys()
        for name, field_id in ids.items():
            assert f"field_id={field_id} {name.split('.')[-1]}" in described
        physical = {name: (each.physical_type, each.logical_type.type) for name, each in found.items()}
        assert physical["i"] == ("INT32", "NONE")
        assert physical["d9"] == ("INT32", "DECIMAL")
        assert physical["d18"] == ("INT64", "DECIMAL")
        assert physical["d19"] == ("FIXED_LEN_BYTE_ARRAY", "DECIMAL")
        assert found["d19"].length == 9
        assert physical["u"] == ("FIXED_LEN_BYTE_ARRAY", "UUID")
        assert physical["x"] == ("FIXED_LEN_BYTE_ARRAY", "NONE")
        assert (physical["s"], physical["b"]) == (("BYTE_ARRAY", "STRING"), ("BYTE_ARRAY", "NONE"))
        assert (physical["day"], physical["t"]) == (("INT32", "DATE"), ("INT64", "TIME"))
        times = {name: found[name].logical_type.to_json() for name in ("ts", "tz")}
        assert '"isAdjustedToUTC":false,"timeUnit":"microseconds"' in times["ts"]
        assert '"isAdjustedToUTC":true,"timeUnit":"microseconds"' in times["tz"]
        assert "required int64 field_id=2 l;" in described
        assert "optional int32 field_id=1 i;" in described
        nested = lake.table().schema()
        for name in ("n", "n.b", "n.b.element", "m", "m.value"):
            assert f"field_id={nested.find_field(name).field_id} {name.split('.')[-1]}" in described
        assert f"required int64 field_id={nested.find_field('n.a').field_id} a;" in described

    def test_takes_names_that_avro_has_not(self, lake: Lake) -> None:
        table = lake.create({"a b": "long", "a-b": "string", "1": 'struct<"x.y": long>'})
        rows = [{"a b": 1, "a-b": "x", "1": {"x.y": 2}}]
        assert read_back(lake, write(table, pa.RecordBatch.from_pylist(rows))) == rows


class TestRows:
    def test_get_null_for_columns_they_lack(self, lake: Lake) -> None:
        table = lake.create({"a": "long", "n": "struct<x: long, y: list<struct<z: string>>>", "u": "uuid"})
        rows = pa.RecordBatch.from_pylist([{"n": {"x": 1}}, {"n": None}])
        assert read_back(lake, write(table, rows)) == [
            {"a": None, "n": {"x": 1, "y": None}, "u": None},
            {"a": None, "n": None, "u": None},
        ]

    def test_are_found_by_name(self, lake: Lake) -> None:
        table = lake.create({"a": "long", "n": "struct<x: long, y: string>"})
        rows = pa.RecordBatch.from_pylist([{"n": {"y": "y", "x": 1}, "a": 2}])
        assert read_back(lake, write(table, rows)) == [{"a": 2, "n": {"x": 1, "y": "y"}}]

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ({"id": 1, "z": 2}, "no column z"),
            ({"id": 1, "n": {"x": 1, "z": 2}}, "no field z in n"),
            ({"id": 1, "tags": [{"z": 2}]}, "no field z in tags"),
            ({"a": 1}, "id is required, and the rows do not have it"),
            ({"id": None}, "id is required, and 1 of the rows have no value"),
            ({"id": 1, "n": {"y": 1}}, "n.x is required, and the rows do not have it"),
            ({"id": 1, "n": {"x": None}}, "n.x is required, and 1 of the rows"),
            ({"id": 1, "a": "1.5"}, "a is string, which does not fit int"),
            ({"id": 1, "a": 2**40}, "a is int64, which does not fit int"),
            ({"id": 1, "n": 5}, "n is int64, and the table has struct"),
        ],
    )
    def test_that_do_not_fit_are_refused(self, lake: Lake, rows: dict[str, Any], said: str) -> None:
        columns = {"id": "long", "a": "int", "n": "struct<x: required long, y: long>", "tags": "list<struct<t: long>>"}
        table = lake.create(columns, required=["id"])
        with pytest.raises(RequestRefused, match=said):
            write(table, pa.RecordBatch.from_pylist([rows]))

    def test_may_lack_what_is_required_within_a_null(self, lake: Lake) -> None:
        inner = "struct<y: required long, u: required uuid, l: required list<string>, m: required map<string, long>>"
        table = lake.create({"n": f"struct<x: required {inner}, s: required string>"})
        x: dict[str, Any] = {"y": 1, "u": uuid.UUID(int=1), "l": ["a"], "m": [("k", 1)]}
        given = [None, {"x": {**x, "u": x["u"].bytes}, "s": "s"}, None]
        rows = batch(n=pa.array(given, nullable(file_columns(table.schema_json).arrow.field("n").type)))
        assert read_back(lake, write(table, rows)) == [{"n": None}, {"n": {"x": x, "s": "s"}}, {"n": None}]

    def test_lack_all_that_is_required_within_nulls_alone(self, lake: Lake) -> None:
        table = lake.create({"n": "struct<x: required long, y: long>"})
        given = pa.array([None, None], pa.struct([("y", pa.int64())]))
        assert read_back(lake, write(table, batch(n=given))) == [{"n": None}, {"n": None}]

    def test_with_two_columns_of_a_name_are_refused(self, lake: Lake) -> None:
        table = lake.create({"a": "long"})
        with pytest.raises(RequestRefused, match="two columns"):
            write(table, pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))

    def test_come_in_other_encodings(self, lake: Lake) -> None:
        table = lake.create(
            {"s": "string", "l": "list<struct<a: long>>", "m": "map<string, int>", "u": "uuid", "i": "long"}
        )
        key = uuid.UUID(int=5)
        rows = pa.table(
            {
                "s": pa.array(["a", None, "a"]).dictionary_encode(),
                "l": pa.array([[{"a": 1}, None], None, []], pa.large_list(pa.struct([("a", pa.int32())]))),
                "m": pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.int64())),
                "u": pa.array([key.bytes, None, key.bytes], pa.binary(16)),
                "i": pa.array([1, 2, None], pa.int8()),
            }
        )
        assert read_back(lake, write(table, rows.slice(0, 2), rows.slice(2))) == [
            {"s": "a", "l": [{"a": 1}, None], "m": [("k", 1)], "u": key, "i": 1},
            {"s": None, "l": None, "m": None, "u": None, "i": 2},
            {"s": "a", "l": [], "m": [], "u": key, "i": None},
        ]

    def test_of_an_evolved_table_stay_readable(self, lake: Lake) -> None:
        before = write(lake.create({"a": "long"}), batch(a=[1]))
        apply(
            lake.client,
            "ns.t",
            plan(lake.client.state("ns.t"), TableSpec("ns.t", (Column("a", "long"), Column("b", "long")))),
        )
        after = write(lake.describe(), batch(a=[2], b=[3]))
        assert sorted(read_back(lake, before + after), key=str) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


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


class TestSettings:
    def options(self, lake: Lake, **properties: str) -> FileSettings:
        leaves = file_columns(lake.create({"a": "string", "n": "struct<x: list<long>>"}).schema_json).leaves
        return FileSettings.of({f"write.{key}": text for key, text in properties.items()}, leaves)

    @pytest.mark.parametrize(
        ("codec", "level", "said"),
        [
            ("zstd", "9", ("zstd", 9)),
            ("ZSTD", "99", ("zstd", 22)),
            ("gzip", "0", ("gzip", 1)),
            ("snappy", "3", ("snappy", None)),
            ("uncompressed", "", ("none", None)),
            ("lzo", "", ("zstd", None)),
            ("zstd", "much", ("zstd", None)),
        ],
    )
    def test_have_codec_and_level(self, lake: Lake, codec: str, level: str, said: tuple[str, int | None]) -> None:
        given = {"parquet.compression-codec": codec, "parquet.compression-level": level}
        options = self.options(lake, **given).options
        assert (options["compression"], options["compression_level"]) == said

    def test_have_sizes(self, lake: Lake) -> None:
        settings = self.options(lake, **{"target-file-size-bytes": "7", "parquet.row-group-size-bytes": "-1"})
        assert (settings.target, settings.row_group) == (7, 128 << 20)

    def test_reach_the_file(self, lake: Lake) -> None:
        properties = {
            "write.parquet.compression-codec": "gzip",
            "write.parquet.dict-encoding-enabled.column.n.x.element": "false",
            "write.parquet.row-group-limit": "10",
        }
        table = lake.create({"a": "string", "n": "struct<x: list<long>>"}, properties=properties)
        (receipt,) = write(table, pa.RecordBatch.from_pylist([{"a": "a", "n": {"x": [1]}}] * 25))
        footer = pq.read_metadata(path_of(receipt))
        assert footer.num_row_groups == 3
        a, x = (footer.row_group(0).column(at) for at in range(2))
        assert {a.compression, x.compression} == {"GZIP"}
        assert (a.has_dictionary_page, x.has_dictionary_page) == (True, False)


class TestDictionary:
    """Of a column whose values hardly ever come twice, it takes more room than it saves."""

    KINDS = ("long", "string", "uuid", "decimal(9, 2)", "timestamptz", "double")

    @staticmethod
    def values(kind: str, numbers: list[int]) -> list[object]:
        make: dict[str, Callable[[int], object]] = {
            "string": str,
            "uuid": lambda n: uuid.UUID(int=n).bytes,
            "decimal(9, 2)": Decimal,
            "timestamptz": lambda n: datetime.fromtimestamp(n, UTC),
            "double": float,
        }
        return [make.get(kind, int)(n) for n in numbers]

    def has(self, lake: Lake, *columns: Sequence[object]) -> list[bool]:
        names = [f"c{at}" for at in range(len(columns))]
        table = lake.create(dict(zip(names, self.KINDS, strict=False)))
        kinds = [plain(pa.nulls(0, each.type)).type for each in file_columns(table.schema_json).arrow]
        arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
        (receipt,) = write(table, pa.RecordBatch.from_arrays(arrays, names=names))
        group = pq.read_metadata(path_of(receipt)).row_group(0)
        return [group.column(at).has_dictionary_page for at in range(len(columns))]

    @pytest.mark.parametrize(
        ("numbers", "expected"),
        [([*range(500)], False), ([n % 400 for n in range(500)], True), ([*range(50)], True)],
        ids=["all different", "some again", "few"],
    )
    def test_is_left_out_only_of_columns_that_need_none(
        self, lake: Lake, numbers: list[int], *, expected: bool
    ) -> None:
        columns = [self.values(kind, numbers) for kind in self.KINDS]
        assert self.has(lake, *columns) == [expected] * len(columns)

    def test_depends_on_values_and_not_on_nulls(self, lake: Lake) -> None:
        assert self.has(lake, [None if n % 3 else n for n in range(600)]) == [False]

    def test_is_not_left_out_of_a_column_of_nulls(self, lake: Lake) -> None:
        assert self.has(lake, [None] * 600) == [True]

    def test_is_chosen_for_fields_of_objects_and_never_left_out_within_lists(self, lake: Lake) -> None:
        table = lake.create({"s": "struct<n: long, k: long>", "l": "list<long>"})
        rows = [{"s": {"n": n, "k": n % 5}, "l": [n]} for n in range(300)]
        (receipt,) = write(table, pa.RecordBatch.from_pylist(rows))
        group = pq.read_metadata(path_of(receipt)).row_group(0)
        assert [group.column(at).has_dictionary_page for at in range(3)] == [False, True, True]
        assert read_back(lake, [receipt]) == rows


class TestInstant:
    def test_keeps_its_microseconds(self, lake: Lake) -> None:
        at = datetime(2025, 11, 20, 1, 2, 3, 456_789, UTC)
        (row,) = read_back(lake, write(lake.create({"at": "timestamptz"}, ["hour(at)"]), batch(at=[at])))
        assert row["at"] == at
