"""Partitions of rows, held against pyiceberg's scalar transforms, value by value."""

import random
import sys
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform, TimeTransform

from catalog import Column, TableSpec, create_table
from catalog import Partition as PartitionSpec
from catalog.data_files import TableFiles
from catalog.errors import RequestRefused
from catalog.file_columns import file_columns
from catalog.file_partitions import Locations, Partitions, PartitionValues
from tests.unit.catalog_package.written_files import Lake, batch, write

DAY = 86_400_000_000
LONGS = [0, 1, -1, 2**63 - 1, -(2**63) + 100, 10, -10, 7]
INSTANTS = [0, -1, 1, DAY, -DAY, -DAY - 1, DAY * 365, 1_763_600_000_123_456, -62_135_596_800_000_000, 3_600_000_000 - 1]
SOURCES: dict[str, tuple[list[Any], list[str]]] = {
    "int": ([0, 1, -1, 2**31 - 1, -(2**31) + 100, 34], ["identity", "bucket[16]", "truncate[10]", "void"]),
    "long": (LONGS, ["identity", "bucket[16]", "truncate[10]", "void"]),
    "decimal(9,2)": (
        [Decimal("14.20"), Decimal("-14.25"), Decimal("0.00"), Decimal("9999999.99")],
        ["identity", "bucket[16]", "truncate[50]", "void"],
    ),
    "decimal(38,0)": ([Decimal(10**37 + 7), Decimal(-(10**37)), Decimal(3)], ["identity", "bucket[7]", "truncate[10]"]),
    "string": (
        ["", "iceberg", "ice", "日本語です", "😀😀😀", "a" * 300],
        ["identity", "bucket[16]", "truncate[3]", "void"],
    ),
    "binary": ([b"", b"\x00\x01\x02\x03", b"\xff" * 9], ["identity", "bucket[16]", "truncate[3]", "void"]),
    "fixed[4]": ([b"\x00\x01\x02\x03", b"\xff" * 4], ["identity", "bucket[16]", "void"]),
    "uuid": ([uuid.UUID(int=1), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")], ["identity", "bucket[16]", "void"]),
    "boolean": ([True, False], ["identity", "void"]),
    "float": ([1.5, -1.5, float("inf")], ["identity", "void"]),
    "double": ([1.5, -1.5, 1e300], ["identity", "void"]),
    "date": ([-1, 0, 1, 20_000, -719_162], ["identity", "year", "month", "day", "bucket[16]", "void"]),
    "time": ([0, 1, DAY - 1, 81_068_000_000], ["identity", "bucket[16]", "void"]),
    "timestamp": (INSTANTS, ["identity", "year", "month", "day", "hour", "bucket[16]", "void"]),
    "timestamptz": (INSTANTS, ["identity", "year", "month", "day", "hour", "bucket[16]", "void"]),
}
CASES = [(kind, transform) for kind, (_, transforms) in SOURCES.items() for transform in transforms]


def column(kind: str, values: list[Any], target: pa.DataType) -> pa.Array:
    if kind in ("date", "time", "timestamp", "timestamptz"):
        return pa.array(values, pa.int32() if kind == "date" else pa.int64()).cast(target)
    return pa.array(values, target)


def term(transform: str, name: str) -> str:
    function, _, number = transform.removesuffix("]").partition("[")
    return name if function == "identity" else f"{function}({f'{number}, ' if number else ''}{name})"


def reference(table: TableFiles, value: Any) -> PartitionValues:
    """What pyiceberg says of one value, which is given as Iceberg stores it."""
    field = table.spec.fields[0]
    kind = table.schema.find_field(field.source_id).field_type
    raw = value.bytes if isinstance(value, uuid.UUID) else value
    assert isinstance(field.transform, IdentityTransform | TimeTransform) or field.transform.can_transform(kind)
    return (field.transform.transform(kind)(raw),)


def partitions_of(table: TableFiles) -> Partitions:
    return Partitions(file_columns(table.schema_json), table.spec)


def split(table: TableFiles, rows: pa.RecordBatch) -> list[tuple[PartitionValues, pa.RecordBatch]]:
    return [*partitions_of(table).split(file_columns(table.schema_json).fit(rows))]


class TestEveryTransform:
    @pytest.mark.parametrize(("kind", "transform"), CASES)
    def test_gives_what_pyiceberg_gives_for_each_value(self, tmp_path: Path, kind: str, transform: str) -> None:
        table = Lake(tmp_path).create({"id": "long", "v": kind}, [term(transform, "v")])
        values, dice = SOURCES[kind][0], random.Random(f"{kind} {transform}")
        target = file_columns(table.schema_json).arrow.field("v").type
        expected = [reference(table, value) for value in values]
        for count in (1, 2, 50, 200):
            drawn = [dice.randrange(len(values) + 1) for _ in range(count)]  # the last is null
            array = column(kind, [None if at == len(values) else values[at] for at in drawn], target)
            rows = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64()), array], ["id", "v"])
            found = {each: key for key, part in split(table, rows) for each in part["id"].to_pylist()}
            assert len(found) == count
            assert found == {each: (None,) if at == len(values) else expected[at] for each, at in enumerate(drawn)}


WIDTHS = [1, 2, 3, 7, 10, 1000, 2**30 + 1, 2**31 - 1]
LAST = {"int": 2**31 - 1, "long": 2**63 - 1, "date": 2**31 - 1, "time": DAY - 1, "timestamp": 2**63 - 1}
HELD = {"int": 2**31, "long": 2**63, "hour": 2**31}  # from minus so much on
YEARS = (-719_162, 2_932_896)  # the days that Python's dates can be: 0001-01-01 to 9999-12-31


def extremes(dice: random.Random, kind: str) -> list[Any]:  # noqa: PLR0911 - one for each kind of type
    """The lowest and the highest values of a type, and some that are near them."""
    name, _, size = kind.rstrip("])").replace("[", "(").partition("(")
    match name:
        case "decimal":
            precision, scale = map(int, size.split(","))
            most = 10**precision - 1
            near = [min(dice.choice(WIDTHS), most) for _ in range(3)]
            found = [0, most, -most, *(most - each for each in near), *(each - most for each in near)]
            return [Decimal((each < 0, tuple(map(int, str(abs(each)))), -scale)) for each in found]
        case "string":
            return ["", "\0", "\uffff", chr(0x10FFFF) * dice.randrange(1, 9), "\ud7ff\ue000", "a" * 5000]
        case "binary":
            return [b"", b"\0" * 9, b"\xff" * dice.randrange(1, 9), bytes(range(256)), b"\xff" * 5000]
        case "fixed":
            return [bytes([each]) * int(size) for each in (0, 127, 128, 255)]
        case "uuid":
            return [uuid.UUID(int=each) for each in (0, 1, 2**128 - 1, 2**127)]
        case "boolean":
            return [True, False]
        case "float" | "double":
            most, least = (3.4028234663852886e38, 2.0**-149) if name == "float" else (sys.float_info.max, 5e-324)
            return [most, -most, least, -least, float("inf"), -float("inf"), 0.0]
    last = LAST[name.removesuffix("tz")]
    near = [min(dice.choice(WIDTHS) + dice.randrange(3), last) for _ in range(3)]
    below = [] if name == "time" else [-1, -last - 1, *(each - last - 1 for each in near)]
    return [0, 1, last, *near, *(last - each for each in near), *below]


def held(kind: str, function: str, value: Any, given: Any) -> bool:
    """Whether the partition of a value is of its type."""
    if function in ("year", "month"):  # the library knows no more years than Arrow can tell
        days: int = value if kind == "date" else value // DAY
        return YEARS[0] <= days <= YEARS[1]
    if kind.startswith("decimal") and function == "truncate":
        return bool(len(given.as_tuple().digits) <= int(kind[8:].partition(",")[0]))
    limit = HELD.get(function if function == "hour" else kind if function == "truncate" else "")
    return limit is None or bool(-limit <= given < limit)


class TestExtremeValue:
    """At the ends of each type a partition is the one that pyiceberg gives, or its rows are refused."""

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize(("kind", "transform"), CASES)
    def test_has_its_partition_or_is_refused(self, tmp_path: Path, kind: str, transform: str, seed: int) -> None:
        print(kind, transform, seed)
        dice, function = random.Random(f"{kind} {transform} {seed}"), transform.partition("[")[0]
        if kind.startswith("decimal"):
            precision = dice.randrange(1, 39)
            kind = f"decimal({precision},{dice.randrange(precision + 1)})"
        if "[" in transform:
            transform = f"{function}[{dice.choice(WIDTHS[:-2])}]"
        table = Lake(tmp_path).create({"v": kind}, [term(transform, "v")])
        target = file_columns(table.schema_json).arrow.field("v").type
        for value in extremes(dice, kind):
            rows = batch(v=column(kind, [value], target))
            try:
                (given,) = reference(table, value)
            except OverflowError:
                given = None
            if held(kind, function, value, given):
                assert [key for key, _ in split(table, rows)] == [(given,)], value
            else:
                with pytest.raises(RequestRefused, match=r"has no number for some of the rows|more digits than"):
                    split(table, rows)


# What Iceberg's specification says of these values (appendix B).
HASHES: list[tuple[str, Any, int]] = [
    ("int", 34, 2017239379),
    ("long", 34, 2017239379),
    ("decimal(9,2)", Decimal("14.20"), -500754589),
    ("date", 17_486, -653330422),
    ("time", 81_068_000_000, -662762989),
    ("timestamp", 1_510_871_468_000_000, -2047944441),
    ("timestamptz", 1_510_871_468_000_000, -2047944441),
    ("string", "iceberg", 1210000089),
    ("uuid", uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
    ("fixed[4]", b"\x00\x01\x02\x03", -188683207),
    ("binary", b"\x00\x01\x02\x03", -188683207),
]


class TestBucket:
    @pytest.mark.parametrize(("kind", "value", "hashed"), HASHES)
    def test_is_the_specifications(self, tmp_path: Path, kind: str, value: object, hashed: int) -> None:
        table = Lake(tmp_path).create({"v": kind}, ["bucket(1000003, v)"])
        rows = batch(v=column(kind, [value], file_columns(table.schema_json).arrow.field("v").type))
        assert [key for key, _ in split(table, rows)] == [((hashed & 0x7FFFFFFF) % 1_000_003,)]


class TestChunk:
    def test_of_one_partition_is_not_copied(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"at": "timestamptz", "s": "string"}, ["day(at)", "s"])
        at = pa.array([DAY * 3 + 5, DAY * 4 - 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
        ((key, rows),) = split(table, batch(at=at, s=["x", "x"]))
        assert key == (3, "x")
        assert rows["at"].buffers()[1].address == at.buffers()[1].address

    def test_in_order_is_cut_and_not_copied(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"at": "timestamptz"}, ["hour(at)"])
        at = pa.array([3_600_000_000 * (n // 100) for n in range(500)], pa.int64()).cast(pa.timestamp("us", "UTC"))
        found = split(table, batch(at=at))
        assert [(key, len(rows)) for key, rows in found] == [((hour,), 100) for hour in range(5)]
        assert {rows["at"].buffers()[1].address for _, rows in found} == {at.buffers()[1].address}

    def test_of_alternating_partitions_is_sorted_by_them_once(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"n": "long", "s": "string"}, ["bucket(4, n)", "s"])
        rows = batch(n=[*range(1000)], s=[["a", None, "b"][n % 3] for n in range(1000)])
        found = split(table, rows)
        assert len(found) == len({key for key, _ in found}) == 12
        assert sorted(n for _, part in found for n in part["n"].to_pylist()) == [*range(1000)]
        for _, part in found:
            assert part["n"].to_pylist() == sorted(part["n"].to_pylist())  # rows of a partition keep their order

    def test_of_nulls_alone_lies_in_the_partition_of_null(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"n": "long"}, ["bucket(4, n)"])
        assert [key for key, _ in split(table, batch(n=pa.array([None, None], pa.int64())))] == [(None,)]

    def test_finds_a_source_within_a_struct(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"n": "struct<x: struct<y: long>>"}, ["n.x.y"])
        given = [{"x": {"y": 1}}, None, {"x": None}, {"x": {"y": 1}}]
        rows = batch(n=pa.array(given, pa.struct([("x", pa.struct([("y", pa.int64())]))])))
        assert sorted(repr(key) for key, part in split(table, rows) for _ in range(len(part))) == [
            *("(1,)", "(1,)", "(None,)", "(None,)")
        ]

    @pytest.mark.parametrize("name", ["a`b", "`; DROP TABLE x; --", "{0}", "%s", "'", '"', "$a", "é `{}`"])
    def test_finds_a_source_with_any_name(self, tmp_path: Path, name: str) -> None:
        lake, doubled = Lake(tmp_path), name.replace('"', '""')
        columns = (Column("s", f'struct<"{doubled}": long>'),)
        create_table(lake.client, TableSpec("ns.t", columns, (PartitionSpec(f"s.{name}", "truncate[5]"),)))
        assert [key for key, _ in split(lake.describe(), batch(s=[{name: 7}]))] == [(5,)]

    def test_that_is_a_slice_of_another_gives_its_own_rows(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"n": "struct<x: long>", "tags": "list<string>"}, ["bucket(8, n.x)"])
        rows = batch(
            n=pa.array([{"x": n} for n in range(20)], pa.struct([("x", pa.int64())])),
            tags=pa.array([[str(n)] for n in range(20)], pa.list_(pa.string())),
        ).slice(5, 10)
        found = [(row["n"]["x"], row["tags"]) for _, part in split(table, rows) for row in part.to_pylist()]
        assert sorted(found) == [(n, [str(n)]) for n in range(5, 15)]

    def test_puts_every_nan_and_zero_into_one_partition(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        table = lake.create({"v": "double"}, ["v"])
        rows = batch(v=[0.0, -0.0, float("nan"), -float("nan"), None])
        receipts = write(table, rows, rows)
        assert sorted(repr(receipt.partition) for receipt in receipts) == ["(0.0,)", "(None,)", "(nan,)"]
        lake.commit(receipts)

    def test_is_refused_if_its_partition_cannot_be_stored(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"v": "decimal(3,1)"}, ["truncate(7, v)"])
        rows = batch(v=pa.array([Decimal("-99.9"), Decimal("99.9"), Decimal("0.0")], pa.decimal128(3, 1)))
        assert [key for key, _ in split(table, rows.slice(1))] == [(Decimal("99.4"),), (Decimal("0.0"),)]
        with pytest.raises(RequestRefused, match="more digits than decimal128"):
            split(table, rows)

    def test_without_rows_makes_no_file(self, tmp_path: Path) -> None:
        table = Lake(tmp_path).create({"v": "double"}, ["v"])
        assert write(table, batch(v=pa.array([], pa.float64()))) == []


class TestFolder:
    @pytest.mark.parametrize(
        ("kind", "transform", "value", "folder"),
        [
            ("string", "identity", "a/b c=d&é", "v=a%2Fb+c%3Dd%26%C3%A9"),
            ("string", "identity", "..", "v=.."),
            ("string", "identity", None, "v=null"),
            ("date", "identity", 20_000, "v=2024-10-04"),
            ("timestamptz", "hour", 489_000, "v_hour=2025-10-14-00"),
            ("timestamptz", "day", 20_000, "v_day=2024-10-04"),
            ("timestamptz", "month", 600, "v_month=2020-01"),
            ("timestamptz", "year", 55, "v_year=2025"),
            ("timestamptz", "year", 200_000, "v_year=201970"),
            ("timestamptz", "day", 90_000_000, "v_day=90000000"),
            ("binary", "identity", b"\x00\xff", "v=AP8%3D"),
            ("boolean", "identity", True, "v=true"),
            ("decimal(9,2)", "identity", Decimal("1.50"), "v=1.50"),
            ("long", "bucket[4]", 3, "v_bucket=3"),
        ],
    )
    def test_is_named_as_iceberg_does(
        self, tmp_path: Path, kind: str, transform: str, value: object, folder: str
    ) -> None:
        table = Lake(tmp_path).create({"v": kind}, [term(transform, "v")])
        assert Locations(table, file_columns(table.schema_json)).folder((value,)) == folder

    def test_is_never_longer_than_a_store_takes(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        table = lake.create({"v": "string"}, ["v"])
        long = ["é" * 5000, "é" * 4999]
        receipts = write(table, batch(v=long))
        assert sorted(receipt.partition for receipt in receipts) == sorted((each,) for each in long)
        assert len(lake.commit(receipts).scan(row_filter=f"v == '{long[0]}'").to_arrow()) == 1

    def test_names_no_code(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        evil = {"write.py-location-provider.impl": "os.path.join"}  # pyiceberg would run it when the table is created
        table = replace(lake.create({"v": "long"}), properties=evil)
        assert write(table, batch(v=[1]))[0].path.startswith(f"{table.location}/data/")

    def test_lies_where_the_tables_properties_say(self, tmp_path: Path) -> None:
        lake = Lake(tmp_path)
        elsewhere = f"file://{tmp_path}/elsewhere"
        table = lake.create({"v": "long"}, ["v"], {"write.data.path": elsewhere})
        assert write(table, batch(v=[1]))[0].path.startswith(f"{elsewhere}/v=1/sensors-e7-b42-s3-a0-")
        spread = lake.create({"v": "long"}, ["v"], {"write.object-storage.enabled": "true"}, name="ns.spread")
        path = write(spread, batch(v=[1]))[0].path.removeprefix(f"{spread.location}/data/").split("/")
        assert [len(part) for part in path[:4]] == [4, 4, 4, 8]
        assert path[4] == "v=1"
        without = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
        flat = lake.create({"v": "long"}, ["v"], without, name="ns.flat")
        assert "v=1" not in write(flat, batch(v=[1]))[0].path
