"""Columns that are checked as a whole agree with rows that are looked at one by one, for any records and plans."""

import json
import pickle
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from catalog import Contract, Rule
from lakehouse_ingest.schema.columns import Aside, ColumnPlan, TablePlan, declared
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.rows import Decoded, RowBuilder, Shaper
from tests.stages.given import FORMATS, records

KINDS = (
    *("Utf8", "Int8", "Int32", "Int64", "UInt32", "UInt64", "Float32", "Float64", "Boolean", "Timestamp", "date"),
    *("decimal(5,2)", "decimal(38,0)", "decimal(38,10)", "Binary", "struct<a: long, b: list<float>>"),
    *("list<decimal(4,2)>", "map<string, date>", "struct<at: timestamptz, in: struct<x: string>>"),
)
TEXTS = (
    *('"2024-05-06T07:08:09Z"', '"2024-05-06T07:08:09.123+02:00"', '"2024-05-06"', '"2024-05-06T07:08"', '"soon"'),
    *('"1714979289"', '"2024-02-30"', '"0000-12-31"', '""', '"AAA="', '"2024-05-06T07:08:09,5 +02"', '"12"'),
    *("0", "1", "-1", "255", "300", "1.5", "-0.0", "1.234", "99.99", "100000.25", "1e2", "1e400", "3.5e38", "NaN"),
    *("1714979289", "1714979289123", "1714979289.123456", "253402300800", str(2**63), str(2**64), "9" * 39),
    *("true", "null", "[]", "{}", "[1, 2.5, null]", '{"a": 1}', '{"a": 1, "b": [1.5], "c": 2}', '{"b": [3.5e38]}'),
    *('{"d": "2024-05-06"}', '{"at": "2024-05-06", "in": {"x": 1}}', '{"in": {"y": 1}}', '{"at": "x"}', "[9999]"),
)
NAMES = ("a", "b", "c", "d", "odd name")


class Doubtful(Shaper):
    """Is sure of no row."""

    def columns(self, data: pa.StructArray, timestamps: pa.Array) -> tuple[list[pa.Array], pa.Array, pa.Array | None]:
        columns, at, _ = super().columns(data, timestamps)
        return columns, at, pa.array([False] * len(data), pa.bool_())


class Doubting(RowBuilder):
    """Looks at each row."""

    def __init__(self, route: RoutePlan, form: Format) -> None:
        super().__init__(route, form)
        self._shaper = Doubtful(route.plan)


def route_of(dice: random.Random) -> RoutePlan:
    names = dice.sample(NAMES, dice.randint(1, len(NAMES)))
    columns = tuple(declared(name, dice.choice(KINDS), required=dice.random() < 0.1) for name in names)
    event_time = dice.choice([None, None, *names])
    aside = dice.choice([None, Aside(refuses=False), Aside(refuses=True, paths={"a": False}, rescues=True)])
    following = dice.choice([None, Following(), Following(Contract(Rule.WIDEN)), Following(final=True)])
    unit = dice.choice(["s", "ms", "us", "ns", "iso"])
    derived = ("year", "month", "day", "hour")[: dice.choice([0, 0, 4])]
    plan = TablePlan("t", columns, event_time, unit, dice.random() < 0.5, aside, derived)
    return RoutePlan(plan, (), following)


def value_of(dice: random.Random) -> str:
    if dice.random() < 0.02:
        return dice.choice(["", "[]", "{", '{"a": 1}x'])
    names = [name for name in (*NAMES, "unknown") if dice.random() < (0.05 if name == "unknown" else 0.7)]
    return "{" + ", ".join(f"{json.dumps(name)}: {dice.choice(TEXTS)}" for name in names) + "}"


def sound_values(dice: random.Random, columns: Sequence[ColumnPlan]) -> list[str]:
    """Records of which most columns are sure: each field has always the same text."""
    texts = {column.field: dice.choice(TEXTS) for column in columns}
    return [
        "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items() if dice.random() < 0.9) + "}"
        for _ in range(30)
    ]


def told(builder: RowBuilder, values: Sequence[str]) -> Any:
    made = builder.rows(records(values))
    made.rows.validate(full=True)
    assert len({*made.numbers.to_pylist(), *made.faults, *made.news}) == len(values)
    # As text, because NaN is not equal to itself.
    return (
        made.numbers.to_pylist(),
        str(made.rows.to_pylist()),
        dict(made.faults),
        str(sorted(made.news.items())),
        made.rescued,
    )


class TestRow:
    @pytest.mark.parametrize("name", sorted(FORMATS))
    def test_is_the_same_at_once_and_one_by_one(self, name: str) -> None:
        seed = random.randrange(10**9)
        print(f"seed {seed}")
        dice = random.Random(seed)
        rows = 0
        for _ in range(200):
            route = route_of(dice)
            values = (
                [value_of(dice) for _ in range(30)] if dice.random() < 0.5 else sound_values(dice, route.plan.columns)
            )
            at_once = told(RowBuilder(route, FORMATS[name]), values)
            one_by_one = told(Doubting(route, FORMATS["exact"]), values)
            assert at_once == one_by_one, (route, values)
            builder = RowBuilder(route, FORMATS[name])
            assert str(sorted(builder.news(builder.decoded(records(values))).items())) == at_once[3], (route, values)
            rows += len(at_once[0])
        assert rows > 200, "hardly any record was sound"


class TestRoutePlan:
    def test_makes_the_same_rows_in_another_process(self) -> None:
        route = route_of(random.Random(1))
        assert pickle.loads(pickle.dumps(route)) == route

    def test_makes_no_rows_of_no_records(self) -> None:
        made = RowBuilder(RoutePlan(TablePlan("t", (ColumnPlan("a", "a", "long"),), "a", "s")), FORMATS["fast"]).rows(
            records([])
        )
        assert (made.rows.num_rows, made.rows.schema.names) == (0, ["a", "event_time", "_source"])


class TestDecoded:
    def test_can_be_changed_before_it_is_shaped(self) -> None:
        """A transform drops records, makes several rows of one, and changes values."""
        columns = (ColumnPlan("n", "n", "int", low=0, high=9, declared="digit"), ColumnPlan("at", "at", "timestamptz"))
        plan = TablePlan("t", columns, None, "iso", aside=Aside(refuses=False))
        builder = RowBuilder(RoutePlan(plan), FORMATS["fast"])
        given = builder.decoded(records(['{"n": 1, "x": true}', '{"n": 2}', '{"n": 3}']))
        data = pa.StructArray.from_arrays(
            [pa.array([7, 70, 8]), pa.array(["2024-05-06", "2024-05-06T07:08:09Z", "soon"])],
            fields=list(given.data.type),
        )
        numbers, index = pa.array([0, 0, 2]), pa.array([0, 1, 0], pa.int32())
        made = builder.shaped(
            Decoded(given.records, data, numbers, rescued=given.rescued, index=index, is_changed=True)
        )
        rows = made.rows.to_pylist()
        assert [(row["n"], str(row["at"])[:10], row["_rescued"]) for row in rows] == [
            (7, "2024-05-06", '{"x":true}'),
            (None, "2024-05-06", '{"x":true,"n":70}'),
            (8, "None", '{"at":"soon"}'),
        ]
        assert [(row["_source"]["offset"], row["_source"]["index"]) for row in rows] == [(0, 0), (0, 1), (2, 0)]
