"""Columns in their spellings: as a person declares them, as they come back from the table, and what is refused."""

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from catalog import canonical
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import FAULT, RECORD, SOURCE
from lakehouse_ingest.schema.arrow_types import arrow_type, wire_type
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, declared, from_table, named
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.table_plans import plan_from_settings
from lakehouse_ingest.settings import TableSettings

TIME = pa.timestamp("us", "UTC")
SPELLINGS: dict[str, tuple[str, pa.DataType, pa.DataType, tuple[int, int] | None]] = {
    # declared: (in Iceberg, in Arrow, as it is read, range)
    "Utf8": ("string", pa.string(), pa.string(), None),
    "Int8": ("int", pa.int32(), pa.int64(), (-128, 127)),
    "Int16": ("int", pa.int32(), pa.int64(), (-32768, 32767)),
    "Int32": ("int", pa.int32(), pa.int32(), None),
    "Int64": ("long", pa.int64(), pa.int64(), None),
    "UInt8": ("int", pa.int32(), pa.int64(), (0, 255)),
    "UInt16": ("int", pa.int32(), pa.int64(), (0, 65535)),
    "UInt32": ("long", pa.int64(), pa.int64(), (0, 2**32 - 1)),
    "UInt64": ("decimal(20,0)", pa.decimal128(20, 0), pa.decimal128(38, 18), (0, 2**64 - 1)),
    "Float32": ("float", pa.float32(), pa.float32(), None),
    "Float64": ("double", pa.float64(), pa.float64(), None),
    "Boolean": ("boolean", pa.bool_(), pa.bool_(), None),
    "Timestamp": ("timestamptz", TIME, pa.string(), None),
    "Binary": ("binary", pa.binary(), pa.binary(), None),
    "string": ("string", pa.string(), pa.string(), None),
    "bigint": ("long", pa.int64(), pa.int64(), None),
    "date": ("date", pa.date32(), pa.date32(), None),
    " Decimal( 10, 2 ) ": ("decimal(10,2)", pa.decimal128(10, 2), pa.decimal128(38, 30), None),
    "struct<Lat: double, at: timestamptz>": (
        "struct<Lat: double, at: timestamptz>",
        pa.struct([("Lat", pa.float64()), ("at", TIME)]),
        pa.struct([("Lat", pa.float64()), ("at", TIME)]),
        None,
    ),
    'list<struct<"odd: <name": decimal(9, 2)>>': (
        'list<struct<"odd: <name": decimal(9, 2)>>',
        pa.list_(pa.struct([("odd: <name", pa.decimal128(9, 2))])),
        pa.list_(pa.struct([("odd: <name", pa.decimal128(9, 2))])),
        None,
    ),
    "struct<Öl: long, 1d: list<int>, n: int>": (
        "struct<Öl: long, 1d: list<int>, n: int>",
        pa.struct([("Öl", pa.int64()), ("1d", pa.list_(pa.int32())), ("n", pa.int32())]),
        pa.struct([("Öl", pa.int64()), ("1d", pa.list_(pa.int32())), ("n", pa.int32())]),
        None,
    ),
    "list<map<string, long>>": (
        "list<map<string, long>>",
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        None,
    ),
}
UNKNOWN = [
    *("Int128", "varchar(5)", "struct", "", "decimal", "decimal(10)", "time stamp"),
    *("decimal(39,0)", "decimal(5,6)", "decimal(0,0)"),
    *("list<>", "list<Int8>", "struct<a: text>", "map<string, list<long>", "list<decimal(50,2)>"),
]


class TestDeclaredType:
    @pytest.mark.parametrize("name", SPELLINGS)
    @pytest.mark.parametrize("required", [True, False])
    def test_has_all_its_spellings(self, name: str, *, required: bool) -> None:
        iceberg, stored, wire, bounds = SPELLINGS[name]
        column = declared("c", name, required=required)
        assert (column.iceberg, column.required) == (iceberg, required)
        assert (arrow_type(column.iceberg), wire_type(column)) == (stored, wire)
        assert ((column.low, column.high) if column.low is not None else None) == bounds

    @pytest.mark.parametrize("kind", ["Timestamp", "boolean", "UINT8", "utf8"])
    def test_means_the_same_in_any_case(self, kind: str) -> None:
        assert declared("c", kind, required=False) == declared("c", kind.lower(), required=False)

    @pytest.mark.parametrize("name", UNKNOWN)
    def test_that_is_unknown_is_refused_with_those_there_are(self, name: str) -> None:
        with pytest.raises(
            SettingsRefused,
            match=r"`columns` or `hints` give c the type .*, which is not known;"
            r" (did you mean \w|there are string, int, )",
        ):
            declared("c", name, required=False)


class TestColumnOfATable:
    @pytest.mark.parametrize("name", SPELLINGS)
    def test_is_the_one_that_was_declared(self, name: str) -> None:
        column = declared("c", name, required=True)
        assert canonical(column.iceberg)
        assert from_table("c", column.iceberg, column.doc, required=True) == column

    def test_keeps_the_name_of_its_field(self) -> None:
        fields = (SOURCE, "", "a b", "declared uint8", "field x", "two\nlines", "A", "a")
        columns, _ = named((declared(name, "UInt8", required=False) for name in fields), (), 100, refuse=False)
        more, _ = named((ColumnPlan(name, name, "string") for name in fields), (), 100, refuse=False)
        for column in (*columns, *more):
            assert from_table(column.name, column.iceberg, column.doc, required=False) == column

    def test_takes_nothing_from_a_strangers_doc_string(self) -> None:
        assert from_table("c", "int", "declared by finance", required=False) == ColumnPlan("c", "c", "int")


def planned(*names: str, **settings: Any) -> tuple[ColumnPlan, ...]:
    columns = [{"name": name, "type": "Int64"} for name in names]
    return plan_from_settings("ns.t", TableSettings.model_validate({"columns": columns, **settings}))


class TestDeclaredColumn:
    @pytest.mark.parametrize("name", [SOURCE, RECORD, FAULT])
    def test_may_not_take_the_name_of_one_of_ours(self, name: str) -> None:
        with pytest.raises(SettingsRefused, match=f"column name {name} of table ns.t is reserved"):
            planned("a", name)

    def test_is_declared_once(self) -> None:
        with pytest.raises(SettingsRefused, match=r"column a is declared twice for table ns\.t"):
            planned("a", "b", "a")

    def test_has_the_event_time_if_one_is_named(self) -> None:
        with pytest.raises(SettingsRefused, match="`event_time` names ts, which is not among the columns"):
            planned("a", event_time="ts")

    def test_that_is_named_like_the_event_time_must_be_it(self) -> None:
        with pytest.raises(SettingsRefused, match="column name event_time is taken by the time found in ts"):
            planned("ts", EVENT_TIME, event_time="ts")
        assert [column.name for column in planned(EVENT_TIME, event_time=EVENT_TIME)] == [EVENT_TIME]

    @pytest.mark.parametrize(
        "changes", [{"contract": "evolve"}, {"contract": "widen"}, {"rescue": True}, {"contracts": {"a": "freeze"}}]
    )
    def test_does_not_follow_the_data(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match="freeze or refuse"):
            TableSettings.model_validate({"columns": [{"name": "a", "type": "long"}], **changes})

    def test_has_a_contract_only_if_it_is_set(self) -> None:
        columns = {"columns": [{"name": "a", "type": "long"}]}
        assert TableSettings.model_validate({**columns, "contract": "freeze"}).rescues
        assert not TableSettings.model_validate({**columns, "contract": "refuse"}).rescues
        assert aside_of(TableSettings.model_validate(columns)) is None
        assert aside_of(TableSettings.model_validate({"contract": "evolve"})) is None


class TestHint:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"hints": {"a": "integer"}}, "give a the type 'integer', which is not known; did you mean"),
            ({"hints": {"a": "int"}, "columns": [{"name": "b", "type": "int"}]}, "`hints` are for columns taken from"),
        ],
    )
    def test_that_says_nothing_or_contradicts_declared_columns_is_refused(
        self, settings: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(SettingsRefused, match=said):
            plan_from_settings("t", TableSettings.model_validate(settings))
