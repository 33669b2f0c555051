"""What was rescued comes back as it was, or stays where it is."""

import datetime as dt
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.promote.json_values import (
    covered,
    fitted,
    found_at,
    parts_of,
    put_at,
    type_of,
    value_of,
    written,
)
from lakehouse_ingest.operations.promote.promotion import planned, promotion_of
from lakehouse_ingest.tables import Column, Partition, PipelineTables, TableState, arrow_type

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


FOREIGN = ("null", "[1]", '[{"a":1}]', "", "x", "{", '{"a"', '{"a":1', '{"a":1}]', '{"a":1,}', '{"a" 1}', "[" * 100_000)


FITS: list[tuple[str, Any, Any]] = [
    ("long", 5, 5),
    ("int", 2**31 - 1, 2**31 - 1),
    ("int", -(2**31), -(2**31)),
    ("double", 5, 5.0),
    ("double", Decimal("1.5"), 1.5),
    ("decimal(5,2)", Decimal("1.5"), Decimal("1.50")),
    ("boolean", False, False),
    ("string", "x", "x"),
    ("string", {"a": [1, Decimal("1.5")]}, '{"a":[1,1.5]}'),
    ("string", Decimal("12345678901234567890.1230"), "12345678901234567890.1230"),
    ("string", {"a": [Decimal("0.12345678901234567890"), None, "ä"]}, '{"a":[0.12345678901234567890,null,"ä"]}'),
    ("string", value_of("[1.0E30, 1.50]"), "[1.0E30,1.50]"),
    ("string", {}, "{}"),
    ("decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("decimal(38,0)", -(10**28), Decimal(-(10**28))),
    (
        "decimal(38,10)",
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    ("double", Decimal("1.7976931348623157e308"), 1.7976931348623157e308),
    ("double", Decimal("-1e308"), -1e308),
    ("float", Decimal("3.4028234663852886e38"), 3.4028234663852886e38),
    ("float", Decimal("1.5"), 1.5),
    ("date", "2024-05-06", dt.date(2024, 5, 6)),
    ("timestamptz", "2024-05-06T07:08:09Z", dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)),
    ("timestamptz", "2024-05-06T07:08:09", dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)),
    ("timestamptz", "2024-05-06T09:08:09,123456000+02", dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)),
    ("timestamptz", "2024-05-06", dt.datetime(2024, 5, 6, tzinfo=dt.UTC)),
    ("timestamptz", "9999-12-31T23:59:59.999999Z", dt.datetime.max.replace(tzinfo=dt.UTC)),
    ("timestamp", "2024-05-06T07:08:09", dt.datetime(2024, 5, 6, 7, 8, 9)),  # noqa: DTZ001 - as the column has it
    ("list<long>", [1, None], [1, None]),
    ("struct<a: long, b: string>", {"a": 1, "c": []}, {"a": 1, "b": None}),
    ("map<string, long>", {"x": 1}, [("x", 1)]),
    ("long", None, None),
]
MISFITS: list[tuple[str, Any]] = [
    *[("long", each) for each in ("5", True, Decimal("1.0"), 2**63, [1], {"a": 1})],
    *[("int", each) for each in (2**31, -(2**31) - 1)],
    *[("double", each) for each in ("1", True, Decimal("1e309"), 10**309, Decimal("1e999"), 2**53 + 1)],
    *[("float", each) for each in (Decimal("1e39"), -(10**39), 2**24 + 1)],
    *[("decimal(5,2)", each) for each in (Decimal("1.555"), 12345, "1")],
    *[("decimal(38,0)", each) for each in (10**38, Decimal("0.5"), Decimal("1e999"))],
    *[("boolean", each) for each in (0, "true")],
    *[("date", each) for each in ("x", 5, "2024-W01-1", "20240506", "2024-02-30", "0000-01-01")],
    *[("timestamptz", each) for each in ("yesterday", 5, "2024-W01-1", "20240506T070809Z", "2024-05-06T24:00:00Z")],
    ("timestamptz", "2024-05-06T07:08Z"),  # is no time to the pipeline either
    *[("timestamptz", each) for each in ("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00")],
    *[("timestamptz", each) for each in ("2024-05-06T07:08:09.1234567Z", "2024-05-06T07:08:09+18:01")],
    ("timestamp", "2024-05-06T07:08:09Z"),
    *[("list<long>", each) for each in (1, ["x"])],
    *[("struct<a: long>", each) for each in (1, {"a": "x"}, {"b": 1})],
]


SIMILAR = st.recursive(
    st.sampled_from([None, True, 1, 2**53 + 1, 2**63, Decimal("0.5"), "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "A", "c.d"]), inner),
    max_leaves=4,
)


PARTED = TableState(
    "ns.t",
    "u",
    "",
    2,
    0,
    (Column("n", "long"), Column("at", "struct<site: string, note: string>"), Column("_rescued", "string")),
    (Partition("n", "bucket[4]"), Partition("at.site")),
    (),
    {},
    {},
    {},
    "",
)


class ManyFiles:
    """Of a table: as many as ten megabytes of what was set aside, each file made when it is asked for."""

    FILES, ROWS = 10, 1_000

    def find(self, _: str) -> TableState:
        return PARTED

    def rows_with(self, *_: object) -> Iterator[pa.Table]:
        for number in range(self.FILES):
            row = json.dumps({"level": number, "long": "x" * 1_000})
            yield pa.table({"_rescued": [row] * self.ROWS})


class TestRescuedText:
    @given(st.dictionaries(st.text(max_size=5), ANY, max_size=4), st.sampled_from([None, 1]), st.booleans())
    def test_is_divided_into_its_fields_as_written(
        self,
        fields: dict[str, Any],
        indent: int | None,
        ascii_only: bool,  # noqa: FBT001
    ) -> None:
        text = json.dumps(fields, indent=indent, ensure_ascii=ascii_only)
        parts = parts_of(text)
        assert {key: json.loads(part) for key, part in parts.items()} == fields
        again = written(parts)
        assert (json.loads(again) if again else {}) == fields

    def test_loses_no_digit_of_a_neighbour(self) -> None:
        text = '{"a":0.1234567890123456789012345,"b":1}'
        parts = parts_of(text)
        del parts["b"]
        assert written(parts) == '{"a":0.1234567890123456789012345}'

    @pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
    def test_of_other_programs_has_no_fields(self, text: str) -> None:
        assert parts_of(text) == {}

    def test_is_searched_file_by_file(self) -> None:
        size = ManyFiles.ROWS * 1_000
        tracemalloc.start()
        in_arrow = pa.total_allocated_bytes()
        try:
            for name, kind in (("level", "long"), ("long", "string")):
                found = promotion_of(cast("PipelineTables", ManyFiles()), PARTED.name, name, None)
                assert (found.rows, found.fitting, found.iceberg) == (10_000, 10_000, kind)
                assert pa.total_allocated_bytes() - in_arrow < 2 * size
            _, peak = tracemalloc.get_traced_memory()
            assert peak < 4 * size
        finally:
            tracemalloc.stop()


class TestColumn:
    @pytest.mark.parametrize(("kind", "value", "wanted"), FITS)
    def test_takes_a_value_of_its_type(self, kind: str, value: Any, wanted: Any) -> None:
        found = fitted(value, arrow_type(kind))
        assert found == wanted
        assert type(found) is type(wanted)
        pa.array([found], arrow_type(kind))

    @pytest.mark.parametrize(("kind", "value"), MISFITS)
    def test_refuses_a_value_of_another_type(self, kind: str, value: Any) -> None:
        with pytest.raises(ValueError, match=r"is not|place|Invalid|day|year"):
            fitted(value, arrow_type(kind))

    def test_inside_objects_is_read_and_filled(self) -> None:
        assert found_at({"b": {"c": 1}}, ("b", "c")) == 1
        assert found_at({"b": 5}, ("b", "c")) is None
        assert put_at({"a": 1, "b": {"d": 2}}, ("b", "c"), 1) == {"a": 1, "b": {"d": 2, "c": 1}}
        assert put_at(None, ("b", "c"), 1) == {"b": {"c": 1}}

    def test_covers_a_value_only_if_nothing_of_it_is_missing(self) -> None:
        assert covered({"lat": 1, "zone": "x", "e": []}, {"lat": 1.0, "zone": "x", "e": None})
        assert not covered({"lat": 1, "zone": "x"}, {"lat": 1.0, "zone": None})
        assert not covered({"lat": 1, "zone": "x"}, {"lat": 1.0})
        assert not covered([{"a": 1}, {"b": 1}], [{"a": 1}, {"a": None}])
        assert covered({"x": 1}, [("x", 1)])
        assert not covered(5, None)


class TestFoundType:
    @given(st.lists(ANY.map(lambda each: value_of(json.dumps(each))), min_size=1, max_size=4))
    def test_takes_the_values_that_it_was_found_in(self, values: list[Any]) -> None:
        """But for those beyond 64 bits, and what JSON text always takes."""
        kind = arrow_type(type_of(values))
        for value in values:
            pa.array([fitted(value, kind)], kind)

    @given(st.lists(SIMILAR, max_size=5).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
    def test_does_not_depend_on_the_order_of_the_values(self, orders: tuple[list[Any], list[Any]]) -> None:
        values, shuffled = orders
        assert type_of(values) == type_of(shuffled)

    @pytest.mark.parametrize(
        ("values", "wanted"),
        [
            ([1, 2], "long"),
            ([1, Decimal("1.5")], "double"),
            ([True, None], "boolean"),
            (["a"], "string"),
            ([1, "a"], "string"),
            ([2**70], "string"),
            ([[1], []], "list<long>"),
            ([{"a": 1}, {"b": "x", "c": None}], 'struct<"a": long, "b": string>'),
            ([{"b": 1}, {"a": 1}], 'struct<"a": long, "b": long>'),
            ([1, 2**53 + 1], "long"),
            ([-1, Decimal("1500.5"), 2**53 + 1], "string"),
            ([{"a": [2**53 + 1]}, {"a": [1]}], 'struct<"a": list<long>>'),
            ([{"a": [2**53 + 1]}, {"a": [Decimal("0.5")]}], "string"),
            ([[1], {"a": 1}], "string"),
            ([Decimal("1e999")], "string"),
            ([{"a.b": 1}], "string"),
            ([None, [], {}], "string"),
        ],
    )
    def test_is_the_narrowest_that_takes_the_values(self, values: list[Any], wanted: str) -> None:
        assert type_of(values) == wanted


class TestPromotion:
    @pytest.mark.parametrize("path", [("n",), ("at",), ("at", "site")])
    def test_of_a_partition_source_is_refused(self, path: tuple[str, ...]) -> None:
        """The row would stay in the partition of rows without a value, where nobody looks for it."""
        with pytest.raises(SettingsRefused, match=r"in which partition of ns\.t a row lies"):
            planned(cast("PipelineTables", None), PARTED, path, None, [])

    def test_in_a_table_of_format_version_3_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ManyFiles, "find", lambda *_: replace(PARTED, format_version=3))
        with pytest.raises(SettingsRefused, match=r"ns\.t has format version 3"):
            promotion_of(cast("PipelineTables", ManyFiles()), PARTED.name, "level", None)

    def test_of_a_neighbour_of_a_partition_source_is_planned(self) -> None:
        assert planned(cast("PipelineTables", None), PARTED, ("at", "note"), None, ["x"]).column == ("at", "note")

    def test_respects_the_declared_range(self) -> None:
        new = planned(cast("PipelineTables", None), PARTED, ("level",), "uint8", [5])
        there = replace(PARTED, columns=(*PARTED.columns, Column("level", "int", doc="declared uint8")))
        for promotion in (new, planned(cast("PipelineTables", None), there, ("level",), None, [])):
            assert [value for value in (-1, 0, 255, 256) if promotion.takes(value, arrow_type("int"))] == [0, 255]
