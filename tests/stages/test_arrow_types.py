"""Types of columns in Arrow: any type that is written comes back as its text, and a wire type loses no value."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import canonical
from lakehouse_ingest.schema.arrow_types import arrow_type, iceberg_text, wire_type
from lakehouse_ingest.schema.column_types import PLAIN, is_written
from lakehouse_ingest.schema.columns import declared

LEAVES = st.sampled_from([*PLAIN, "timestamp", "decimal(38,0)", "decimal(5, 2)", "decimal(1,1)"])
NAMES = st.text(min_size=1, max_size=5) | st.sampled_from(["long", "list", "timestamp", "Öl", "1d", 'say "x"', "a:b>"])


def in_quotes(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def nested(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.dictionaries(NAMES, types, min_size=1, max_size=3)
    return st.one_of(
        types.map("list<{}>".format),
        types.map("map<string, {}>".format),
        fields.map(lambda found: f"struct<{', '.join(f'{in_quotes(name)}: {kind}' for name, kind in found.items())}>"),
    )


class TestAnyTypeThatIsWritten:
    @given(st.recursive(LEAVES, nested, max_leaves=6))
    def test_comes_back_as_its_text(self, iceberg: str) -> None:
        assert is_written(iceberg)
        assert iceberg_text(arrow_type(iceberg)) == canonical(iceberg)

    @given(st.recursive(LEAVES, nested, max_leaves=6))
    def test_comes_back_as_its_arrow_type(self, iceberg: str) -> None:
        kind = arrow_type(iceberg)
        assert arrow_type(iceberg_text(kind)) == kind


class TestUnknownType:
    @pytest.mark.parametrize(
        "iceberg", ["uuid", "time", "fixed[4]", "struct<at: time>", "list<timestamptz_ns>", "text", ""]
    )
    def test_is_refused(self, iceberg: str) -> None:
        with pytest.raises(ValueError, match="type"):
            arrow_type(iceberg)


class TestWireType:
    @pytest.mark.parametrize(
        ("name", "stored", "wire"),
        [
            ("string", pa.string(), pa.string()),
            ("Int8", pa.int32(), pa.int64()),
            ("uint16", pa.int32(), pa.int64()),
            ("int", pa.int32(), pa.int32()),
            ("UInt32", pa.int64(), pa.int64()),
            ("UInt64", pa.decimal128(20, 0), pa.decimal128(38, 18)),
            ("decimal(5,2)", pa.decimal128(5, 2), pa.decimal128(38, 35)),
            ("decimal(38,10)", pa.decimal128(38, 10), pa.decimal128(38, 10)),
            ("float", pa.float32(), pa.float32()),
            ("timestamptz", pa.timestamp("us", "UTC"), pa.string()),
            ("date", pa.date32(), pa.date32()),
            ("binary", pa.binary(), pa.binary()),
            (
                "struct<at: timestamptz, d: decimal(5,2)>",
                pa.struct([("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 2))]),
                pa.struct([("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 2))]),
            ),
            ("list<int>", pa.list_(pa.int32()), pa.list_(pa.int32())),
            ("map<string, long>", pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        ],
    )
    def test_is_wide_where_a_value_must_be_checked(self, name: str, stored: pa.DataType, wire: pa.DataType) -> None:
        column = declared("c", name, required=False)
        assert arrow_type(column.iceberg) == stored
        assert wire_type(column) == wire

    @pytest.mark.parametrize(("name", "value"), [("uint8", 256), ("decimal(5,2)", Decimal("999.991"))])
    def test_holds_what_the_column_does_not_take(self, name: str, value: Any) -> None:
        assert pa.array([value], wire_type(declared("c", name, required=False))).to_pylist() == [value]
