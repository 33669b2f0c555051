"""Rows in files: the files' schema, how rows are fitted to it, and how they are read back."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Column, TableSpec, apply, plan
from catalog.errors import RequestRefused
from catalog.file_columns import file_columns
from tests.unit.catalog_package.written_files import Lake, batch, lake, path_of, read_back, write

__all__ = ["lake"]  # a fixture


def nullable(kind: pa.DataType) -> pa.DataType:
    """The same type, with nothing in it required; Arrow makes no uuid within a struct of Python's."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, nullable(field.type)) for field in kind.fields])
    return pa.binary(16) if kind == pa.uuid() else kind


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


class TestInstant:
    def test_keeps_its_microseconds(self, lake: Lake) -> None:
        at = datetime(2025, 11, 20, 1, 2, 3, 456_789, UTC)
        (row,) = read_back(lake, write(lake.create({"at": "timestamptz"}, ["hour(at)"]), batch(at=[at])))
        assert row["at"] == at
