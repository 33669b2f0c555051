"""Laws of Arrow's types and ours: there and back nothing is lost, and no value of the data is one too many."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Column, RequestRefused, arrow_type, canonical, columns_of
from tests.services.schemas import ODD_NAMES, any_types

LEAVES = ("date", "time", "timestamp", "timestamptz_ns", "decimal(38,38)", "fixed[4]", "binary", "uuid")
NOW = dt.datetime(2026, 11, 19, 12, 30, 15, 250_000)  # noqa: DTZ001 - the zone is the type's


def schema_of(columns: list[Column]) -> pa.Schema:
    fields = [(each, {"doc": each.doc} if each.doc else None) for each in columns]
    return pa.schema(
        [pa.field(each.name, arrow_type(each.type), not each.required, metadata=told) for each, told in fields]
    )


class TestArrowColumns:
    @given(
        st.lists(
            st.builds(
                Column,
                st.sampled_from(ODD_NAMES),
                any_types(*LEAVES),
                st.booleans(),
                st.sampled_from([None, "why", "wo?"]),
            )
        )
    )
    def test_come_back_from_arrow_as_they_were(self, columns: list[Column]) -> None:
        assert columns_of(schema_of(columns)) == tuple(
            Column(each.name, canonical(each.type), each.required, each.doc) for each in columns
        )

    @pytest.mark.parametrize(
        ("kind", "text", "values"),
        [
            (pa.null(), "unknown", [None]),
            (pa.int8(), "int", [-(2**7), 2**7 - 1]),
            (pa.uint16(), "int", [0, 2**16 - 1]),
            (pa.uint32(), "long", [0, 2**32 - 1]),
            (pa.uint64(), "decimal(20,0)", [0, 2**64 - 1]),
            (pa.float16(), "float", [-65504.0, 0.5]),
            (pa.decimal32(9, 2), "decimal(9,2)", [Decimal("-9999999.99")]),
            (pa.decimal256(38, 0), "decimal(38,0)", [Decimal(10**38 - 1)]),
            (pa.date64(), "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
            (pa.time32("ms"), "time", [dt.time(23, 59, 59, 999_000)]),
            (pa.timestamp("s"), "timestamp", [NOW.replace(microsecond=0)]),
            (pa.timestamp("ns"), "timestamp_ns", [NOW]),
            (pa.timestamp("ms", "Asia/Kolkata"), "timestamptz", [NOW.replace(tzinfo=dt.UTC)]),
            (pa.dictionary(pa.int8(), pa.string()), "string", ["a", "b", "a"]),
            (pa.run_end_encoded(pa.int32(), pa.uint8()), "int", [1, 1, 255]),
            (pa.string_view(), "string", ["größe"]),
            (pa.binary(2), "fixed[2]", [b"ab"]),
        ],
        ids=str,
    )
    def test_take_every_value_of_their_arrow_type(self, kind: pa.DataType, text: str, values: list[Any]) -> None:
        (column,) = columns_of(pa.schema([("a", kind)]))
        assert column == Column("a", text)
        assert pa.array(pa.array(values, kind).to_pylist(), arrow_type(text)).to_pylist() == values

    def test_of_lists_maps_and_structs_have_types_for_all_leaves(self) -> None:
        inside = pa.struct([pa.field("n", pa.uint8(), nullable=False, metadata={"doc": "how many"})])
        schema = pa.schema(
            [
                ("views", pa.list_view(inside)),
                ("pair", pa.list_(pa.field("item", pa.float32(), nullable=False), 2)),
                ("flags", pa.large_list(pa.bool8())),
                ("by", pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.field("value", inside, nullable=False))),
            ]
        )
        assert [each.type for each in columns_of(schema)] == [
            'list<struct<n: required int "how many">>',
            "list<required float>",
            "list<boolean>",
            'map<string, required struct<n: required int "how many">>',
        ]

    @pytest.mark.parametrize(
        "kind",
        [
            pa.duration("s"),
            pa.time64("ns"),
            pa.decimal256(39, 0),
            pa.decimal128(5, -2),
            pa.month_day_nano_interval(),
            pa.sparse_union([pa.field("a", pa.int8())]),
        ],
        ids=str,
    )
    def test_without_an_iceberg_type_are_refused_by_their_path(self, kind: pa.DataType) -> None:
        schema = pa.schema([("s", pa.struct([("x", pa.map_(pa.string(), kind))]))])
        with pytest.raises(
            RequestRefused, match=r"^s\.x\.value is .*, and Iceberg has no type that holds .*: cast it first"
        ):
            columns_of(schema)
