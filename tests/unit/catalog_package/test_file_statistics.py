"""Statistics of data files: bounds that hold for every value, counts, and how much of them a table asks for."""

import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.data_files import DataFileReceipt
from catalog.file_columns import file_columns
from catalog.file_statistics import Mode, modes
from tests.unit.catalog_package.written_files import Lake, batch, write

DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column"


def one(folder: Path, kind: str, *values: Any, properties: dict[str, str] | None = None) -> DataFileReceipt:
    """The receipt of a file with one column, whose id is 1."""
    table = Lake(folder).create({"v": kind}, properties=properties)
    arrow = file_columns(table.schema_json).arrow
    (receipt,) = write(table, pa.RecordBatch.from_arrays([pa.array(values, arrow.field("v").type)], ["v"]))
    return receipt


class TestUpperBound:
    @pytest.mark.parametrize(
        ("largest", "bound"),
        [
            ("a" * 16, "a" * 16),
            ("a" * 17, "a" * 15 + "b"),
            ("ä" * 17, "ä" * 15 + "å"),
            ("\ud7ff" * 17, "\ud7ff" * 15 + "\ue000"),  # the characters in between are surrogates
            ("a" * 15 + "\U0010ffff" * 2, "a" * 14 + "b"),
            ("\U0010ffff" * 17, None),
            ("😀" * 17, "😀" * 15 + "😁"),
            ("a\x00" * 9, "a\x00" * 7 + "a\x01"),
        ],
    )
    def test_of_long_text_is_no_less_and_can_be_written(self, tmp_path: Path, largest: str, bound: str | None) -> None:
        receipt = one(tmp_path, "string", largest, "")
        assert receipt.upper_bounds.get(1) == (bound.encode() if bound is not None else None)
        assert receipt.lower_bounds[1] == b""
        assert bound is None or bound >= largest

    @pytest.mark.parametrize(
        ("largest", "bound"),
        [
            (b"\xff" * 16, b"\xff" * 16),
            (b"\xff" * 17, None),
            (b"a" * 15 + b"\xff\xff", b"a" * 14 + b"b"),
            (b"a" * 17, b"a" * 15 + b"b"),
        ],
    )
    def test_of_long_bytes_is_no_less(self, tmp_path: Path, largest: bytes, bound: bytes | None) -> None:
        receipt = one(tmp_path, "binary", largest)
        assert receipt.upper_bounds.get(1) == bound
        assert receipt.lower_bounds[1] == largest[:16]

    def test_is_missing_if_a_row_group_has_none(self, tmp_path: Path) -> None:
        # Parquet keeps no bounds of more than 4 KiB; those of the other row group alone would hide this one.
        receipt = one(tmp_path, "string", "b", "z" * 5000, properties={"write.parquet.row-group-limit": "1"})
        assert receipt.null_counts[1] == 0
        assert receipt.lower_bounds == receipt.upper_bounds == {}

    def test_leaves_row_groups_of_nulls_aside(self, tmp_path: Path) -> None:
        receipt = one(tmp_path, "string", None, "b", None, properties={"write.parquet.row-group-limit": "1"})
        assert (receipt.lower_bounds[1], receipt.upper_bounds[1], receipt.null_counts[1]) == (b"b", b"b", 2)
        assert len(receipt.split_offsets) == 3


class TestBounds:
    @pytest.mark.parametrize(
        ("kind", "values", "lower", "upper"),
        [
            ("boolean", [True, False], b"\x00", b"\x01"),
            ("int", [-1, 7], b"\xff\xff\xff\xff", b"\x07\x00\x00\x00"),
            ("long", [-(2**63), 2**63 - 1], b"\x00" * 7 + b"\x80", b"\xff" * 7 + b"\x7f"),
            ("float", [0.0], struct.pack("<f", -0.0), struct.pack("<f", 0.0)),
            ("double", [-0.0, 1.5], struct.pack("<d", -0.0), struct.pack("<d", 1.5)),
            ("decimal(5,2)", [Decimal("-1.28"), Decimal("1.28")], b"\x80", b"\x00\x80"),
            ("decimal(18,2)", [Decimal("-1.29")], b"\xff\x7f", b"\xff\x7f"),
            ("decimal(38,0)", [Decimal(10**37)], (10**37).to_bytes(16, "big"), (10**37).to_bytes(16, "big")),
            ("fixed[2]", [b"\x00\xff", b"\xff\x00"], b"\x00\xff", b"\xff\x00"),
        ],
    )
    def test_are_serialized_as_iceberg_says(
        self, tmp_path: Path, kind: str, values: list[Any], lower: bytes, upper: bytes
    ) -> None:
        receipt = one(tmp_path, kind, *values)
        assert (receipt.lower_bounds[1], receipt.upper_bounds[1]) == (lower, upper)

    def test_hold_times_that_python_has_not(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"v": "timestamptz", "d": "date"})
        far = pa.array([-(2**62), 2**62]).cast(pa.timestamp("us", "UTC"))
        (receipt,) = write(table, batch(v=far, d=pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32())))
        assert receipt.lower_bounds[1] == struct.pack("<q", -(2**62))
        assert receipt.upper_bounds[2] == struct.pack("<i", 2**31 - 1)

    def test_of_a_struct_are_those_of_its_fields(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"_source": "struct<topic: string, offset: long, at: struct<n: int>>"})
        given = [{"topic": "t", "offset": 5, "at": {"n": 1}}, None, {"topic": "u", "offset": 9, "at": None}]
        (receipt,) = write(table, pa.RecordBatch.from_pylist([{"_source": each} for each in given]))
        ids = {leaf.name: leaf.field_id for leaf in file_columns(table.schema_json).leaves}
        offset, n = ids["_source.offset"], ids["_source.at.n"]
        assert (receipt.lower_bounds[offset], receipt.upper_bounds[offset]) == (
            struct.pack("<q", 5),
            struct.pack("<q", 9),
        )
        assert (receipt.value_counts[offset], receipt.null_counts[offset], receipt.null_counts[n]) == (3, 1, 2)

    def test_are_not_given_for_lists_maps_and_uuids(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"l": "list<long>", "m": "map<string, long>", "u": "uuid"})
        rows = {"l": [1], "m": [("a", 1)], "u": b"a" * 16}
        (receipt,) = write(table, pa.RecordBatch.from_pylist([rows], schema=file_columns(table.schema_json).arrow))
        assert receipt.lower_bounds == receipt.upper_bounds == {}
        assert len(receipt.column_sizes) == 4
        assert [*receipt.null_counts.values()] == [0]


class TestNan:
    def test_is_counted_and_leaves_no_bounds(self, tmp_path: Path) -> None:
        receipt = one(tmp_path, "double", 1.0, math.nan, None, math.nan)
        assert (receipt.nan_counts[1], receipt.value_counts[1]) == (2, 4)
        assert receipt.lower_bounds == receipt.upper_bounds == {}

    def test_alone_is_not_counted(self, tmp_path: Path) -> None:
        assert one(tmp_path, "float", math.nan).nan_counts == {}

    def test_that_is_absent_is_counted_as_well(self, tmp_path: Path) -> None:
        assert one(tmp_path, "float", 1.0, None).nan_counts == {1: 0}

    def test_that_comes_later_goes_to_another_file(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"v": "double", "w": "double"})
        chunks = [batch(v=[1.0], w=[2.0]), batch(v=[3.0], w=[math.nan]), batch(v=[4.0], w=[5.0])]
        first, second = write(table, *chunks, budget=1)
        assert (first.record_count, second.record_count) == (1, 2)
        assert second.nan_counts == {1: 0, 2: 1}
        assert [*second.lower_bounds] == [1]


class TestMetricsMode:
    @pytest.mark.parametrize(
        ("text", "mode"),
        [
            ("none", Mode(counts=False, bounds=False)),
            ("Counts", Mode(bounds=False)),
            (" full", Mode(length=None)),
            ("truncate(3)", Mode(length=3)),
            ("truncate(0)", None),
            ("truncate", None),
            ("", None),
        ],
    )
    def test_is_read(self, text: str, mode: Mode | None) -> None:
        assert Mode.parse(text) == mode

    def test_none_keeps_sizes_alone(self, tmp_path: Path) -> None:
        receipt = one(tmp_path, "string", "a", properties={DEFAULT: "none"})
        assert [*receipt.column_sizes] == [1]
        assert (receipt.value_counts, receipt.null_counts, receipt.lower_bounds) == ({}, {}, {})

    def test_counts_keeps_no_bounds(self, tmp_path: Path) -> None:
        receipt = one(tmp_path, "string", "a", None, properties={DEFAULT: "full", f"{COLUMN}.v": "counts"})
        assert (receipt.value_counts, receipt.null_counts, receipt.lower_bounds) == ({1: 2}, {1: 1}, {})

    def test_full_keeps_long_values(self, tmp_path: Path) -> None:
        assert one(tmp_path, "string", "a" * 99, properties={DEFAULT: "full"}).upper_bounds == {1: b"a" * 99}

    def test_truncate_cuts_characters_and_not_bytes(self, tmp_path: Path) -> None:
        receipt = one(tmp_path, "string", "äöü", properties={f"{COLUMN}.v": "truncate(2)"})
        assert (receipt.lower_bounds, receipt.upper_bounds) == ({1: "äö".encode()}, {1: "ä÷".encode()})

    def test_that_is_unknown_is_the_default(self, tmp_path: Path) -> None:
        leaves = file_columns(Lake(tmp_path).create({"v": "string"}).schema_json).leaves
        assert modes(leaves, {DEFAULT: "all"}, ()) == modes(leaves, {}, ()) == {1: Mode()}

    def test_is_inferred_for_the_first_columns_alone(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"s": "struct<x: long, y: struct<z: long>>", "a": "long", "b": "binary"})
        leaves = file_columns(table.schema_json).leaves
        kept = modes(leaves, {"write.metadata.metrics.max-inferred-column-defaults": "3"}, ())
        assert {leaf.name for leaf in leaves if kept[leaf.field_id].counts} == {"a", "b", "s.x"}
        explicit = modes(leaves, {"write.metadata.metrics.max-inferred-column-defaults": "3", DEFAULT: "full"}, ())
        assert {*explicit.values()} == {Mode(length=None)}

    def test_of_columns_that_rows_are_sorted_by_keeps_bounds(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"a": "long", "b": "string"}, properties={DEFAULT: "none"}, order=["b"])
        (receipt,) = write(table, batch(a=[1], b=["x"]))
        assert receipt.lower_bounds == {2: b"x"}

    def test_ignores_that_a_name_has_a_dot(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"a.b": "long"})
        (receipt,) = write(table, pa.RecordBatch.from_pydict({"a.b": [5]}))
        assert receipt.lower_bounds == {1: struct.pack("<q", 5)}
