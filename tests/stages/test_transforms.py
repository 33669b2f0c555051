"""A function of the user may change, leave out, reject and multiply records; each stays in exactly one place."""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, TryAgain
from lakehouse_ingest.records import FAULT, Reason
from lakehouse_ingest.schema.columns import Aside, TablePlan, declared
from lakehouse_ingest.settings import load_settings
from lakehouse_ingest.stages import transforms
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import Fault
from lakehouse_ingest.stages.rows import RowBuilder, Shaped
from lakehouse_ingest.stages.transforms import ROW, Transform, Transformer, set_aside
from tests.stages.making import SmallJson, records_of

COLUMNS = {"degrees": "double", "unit": "string", "n": "int8"}
READINGS: list[dict[str, Any]] = [
    {"degrees": 20.0, "unit": "C"},
    {"degrees": 212.0, "unit": "F"},
    {"degrees": -40.0, "unit": "F"},
    {"degrees": 300.0, "unit": "K"},
    {"degrees": None, "unit": "C"},
]


class Street:
    """Decodes, transforms and shapes, as a task does."""

    def __init__(self, transform: Transform, columns: dict[str, str] | None = None) -> None:
        self.columns = [
            declared(name, kind, required=False) for name, kind in (COLUMNS if columns is None else columns).items()
        ]
        self.builder = RowBuilder(RoutePlan(TablePlan("t", tuple(self.columns), None, "iso")), SmallJson())
        self.transformer = Transformer(transform, self.columns)
        self.filtered = 0

    def rows(self, readings: list[Any]) -> Shaped:
        values = [json.dumps(each).encode() if isinstance(each, dict) else each for each in readings]
        shaped, self.filtered = self.transformer.rows(records_of(values), self.builder)
        places = {*shaped.numbers.to_pylist()}, {*shaped.faults}
        assert not places[0] & places[1]
        assert len(places[0]) + len(places[1]) + self.filtered == len(readings)
        return shaped


def landed(shaped: Shaped, *names: str) -> list[tuple[Any, ...]]:
    rows = shaped.rows.to_pylist()
    return [(row["_source"]["offset"], *(row[name] for name in names)) for row in rows]


def with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)


def in_celsius(rows: pa.Table) -> pa.Table:
    unit, degrees = rows["unit"], rows["degrees"]
    rows = set_aside(rows, pc.invert(pc.is_in(unit, pa.array(["C", "F"]))), "the unit is neither C nor F")
    celsius = pc.divide(pc.subtract(degrees, 32), 1.8)
    rows = with_column(rows, "degrees", pc.if_else(pc.equal(unit, "F"), celsius, degrees))
    return with_column(rows, "unit", pa.array(["C"] * len(rows)))


class TestTransform:
    def test_changes_values_and_rejects_records(self) -> None:
        street = Street(in_celsius)
        found = street.rows([*READINGS, b"{"])
        assert landed(found, "degrees", "unit") == [
            (0, 20.0, "C"),
            (1, pytest.approx(100.0), "C"),
            (2, pytest.approx(-40.0), "C"),
            (4, None, "C"),
        ]
        said = "the unit is neither C nor F"
        assert found.faults[3] == Fault(Reason.SET_ASIDE, said, "transform", said)
        assert (found.faults[5].reason, street.filtered) == (Reason.BROKEN, 0)

    def test_leaves_out_records_and_they_are_counted(self) -> None:
        street = Street(lambda rows: rows.filter(pc.equal(rows["unit"], "C")))
        assert landed(street.rows([*READINGS, b"{"])) == [(0,), (4,)]
        assert street.filtered == 3

    def test_makes_several_rows_of_a_record_in_their_order(self) -> None:
        def thrice(rows: pa.Table) -> pa.Table:
            tables = [with_column(rows, "n", pa.array([n] * len(rows))) for n in (7, 8, 9)]
            return pa.concat_tables([tables[0], tables[1].slice(1), tables[2].slice(2)])

        found = Street(thrice).rows(READINGS[:3])
        rows = [(row["_source"]["offset"], row["_source"]["index"], row["n"]) for row in found.rows.to_pylist()]
        assert rows == [(0, 0, 7), (1, 0, 7), (1, 1, 8), (2, 0, 7), (2, 1, 8), (2, 2, 9)]

    def test_may_return_rows_in_any_order(self) -> None:
        assert landed(Street(lambda rows: rows.take(pa.array([2, 0, 1]))).rows(READINGS[:3])) == [(0,), (1,), (2,)]

    def test_sees_the_record_beside_its_fields(self) -> None:
        seen: list[pa.Table] = []

        def looking(rows: pa.Table) -> pa.Table:
            seen.append(rows)
            return rows

        Street(looking).rows([b"{", {"n": 1}])
        (row,) = seen[0].to_pylist()
        assert {name: row[name] for name in (*COLUMNS, ROW)} == {"degrees": None, "unit": None, "n": 1, ROW: 1}
        assert [*row["_record"]] == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert (row["_record"]["offset"], row["_record"]["value"]) == (1, b'{"n": 1}')

    def test_is_not_called_without_a_record(self) -> None:
        def never(rows: pa.Table) -> pa.Table:
            raise AssertionError(rows)

        assert len(Street(never).rows([b"{"]).numbers) == 0

    def test_may_drop_the_record_and_add_columns_for_itself(self) -> None:
        found = Street(lambda rows: rows.drop_columns(["_record"]).append_column("_mine", rows["n"])).rows(READINGS)
        assert len(found.numbers) == len(READINGS)

    def test_leaves_fields_that_are_named_like_ours_as_they_are(self) -> None:
        def first(rows: pa.Table) -> pa.Table:
            assert rows["_row"].type == pa.int64()
            return rows.slice(1)

        values = [{"_row": "a", "_fault": "b", "x": 1}, {"_row": "c", "_fault": "d", "x": 2}]
        street = Street(first, {"_row": "string", "_fault": "string", "x": "long"})
        found = street.builder.decoded(records_of([json.dumps(each).encode() for each in values]))
        decoded, _ = street.transformer.applied(found)
        assert decoded.data.to_pylist() == [values[1]]

    def test_leaves_rescued_values_with_their_records(self) -> None:
        """It does not see them, whatever it does with the rows."""

        def last_twice_and_no_first(rows: pa.Table) -> pa.Table:
            return pa.concat_tables([rows.slice(2), rows.slice(1)])

        columns = (declared("n", "int8", required=False),)
        plan = TablePlan("t", columns, None, "iso", aside=Aside(refuses=False))
        values = [b'{"n": 1, "x": 1}', b'{"n": 2}', b'{"n": 3, "x": 3}']
        builder = RowBuilder(RoutePlan(plan), SmallJson())
        found, filtered = Transformer(last_twice_and_no_first, columns).rows(records_of(values), builder)
        assert landed(found, "n", "_rescued") == [(1, 2, None), (2, 3, '{"x":3}'), (2, 3, '{"x":3}')]
        assert (filtered, found.rescued) == (1, 2)

    def test_of_rows_that_are_left_out_leaves_out_their_rescued_values(self) -> None:
        columns = (declared("n", "long", required=True),)
        builder = RowBuilder(RoutePlan(TablePlan("t", columns, None, "iso", aside=Aside(refuses=False))), SmallJson())

        def second_is_missing(rows: pa.Table) -> pa.Table:
            return pa.concat_tables([rows, with_column(rows, "n", pa.array([None, 7], pa.int64()))])

        values = [b'{"n": 1, "x": 1}', b'{"n": 2, "x": 2}']
        found, _ = Transformer(second_is_missing, columns).rows(records_of(values), builder)
        assert landed(found, "n", "_rescued") == [(1, 2, '{"x":2}'), (1, 7, '{"x":2}')]
        assert ({*found.faults}, found.rescued) == ({0}, 2)

    def test_may_return_a_relation_of_duckdb(self) -> None:
        connection = duckdb.connect()

        def in_duckdb(rows: pa.Table) -> Any:
            connection.register("readings", rows)
            return connection.sql(
                "SELECT * REPLACE ((degrees - 32) / 1.8 AS degrees, 'C' AS unit), CASE unit WHEN 'K' THEN 'Kelvin' END"
                " AS _fault FROM readings WHERE degrees IS NOT NULL"
            )

        street = Street(in_duckdb)
        found = street.rows(READINGS)
        assert [offset for offset, *_ in landed(found)] == [0, 1, 2]
        assert (found.faults[3].detail, street.filtered) == ("Kelvin", 1)

    @pytest.mark.parametrize(
        "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
    )
    def test_may_return_text_as_other_libraries_have_it(self, kind: pa.DataType) -> None:
        found = Street(lambda rows: with_column(rows, "unit", pa.array(["x"] * len(rows)).cast(kind))).rows(READINGS)
        assert landed(found, "unit")[0] == (0, "x")

    @given(st.integers(0, 2**32))
    def test_loses_and_doubles_no_record_whatever_it_does(self, seed: int) -> None:
        """Any rows in any order, some of them rejected or of a wrong type."""
        dice = random.Random(seed)
        readings: list[Any] = [dice.choice([b"{", {"n": n, "unit": "C"}]) for n in range(dice.randint(0, 12))]
        sound = [row for row, each in enumerate(readings) if isinstance(each, dict)]
        rows = [dice.choice(sound) for _ in range(dice.randint(0, 20))] if sound else []
        values = [dice.choice(["1", "12", "1", "128", "x"]) for _ in rows]
        details = [dice.choice([None, None, None, "no"]) for _ in rows]

        def any_rows(given: pa.Table) -> pa.Table:
            taken = given.take(pa.array([sound.index(row) for row in rows], pa.int64()))
            return with_column(taken, "n", pa.array(values, pa.string())).append_column(
                FAULT, pa.array(details, pa.string())
            )

        street = Street(any_rows)
        found = street.rows(readings)
        bad = {row for row, value, no in zip(rows, values, details, strict=True) if no or value not in ("1", "12")}
        assert {*found.faults} == bad | {row for row in range(len(readings)) if row not in sound}
        assert street.filtered == len({*sound} - {*rows})
        expected = Counter(row for row in rows if row not in bad)
        assert [row["_source"]["index"] for row in found.rows.to_pylist()] == [
            index for row in sorted(expected) for index in range(expected[row])
        ]
        kept = sorted((row, at) for at, row in enumerate(rows) if row not in bad)
        assert found.rows["n"].to_pylist() == [int(values[at]) for _, at in kept]


class TestRejectedRecord:
    def test_keeps_the_detail_that_came_first(self) -> None:
        def twice(rows: pa.Table) -> pa.Table:
            rows = set_aside(rows, pc.equal(rows["n"], 1), "one")
            return set_aside(rows, pc.greater(rows["n"], 0), "more than nothing")

        found = Street(twice).rows([{"n": n} for n in range(3)] + [{}])
        assert {row: fault.detail for row, fault in found.faults.items()} == {1: "one", 2: "more than nothing"}
        assert found.faults[2].told == "more than nothing"

    def test_with_a_text_of_its_own_shows_nothing_of_it(self) -> None:
        """The text may hold anything of the record."""
        found = Street(lambda rows: rows.append_column(FAULT, rows["unit"])).rows([{"unit": "Ann Smith"}, {}])
        assert found.faults == {0: Fault(Reason.SET_ASIDE, "Ann Smith", "transform", "")}

    def test_takes_all_of_its_rows_along(self) -> None:
        def second_is_bad(rows: pa.Table) -> pa.Table:
            twice = pa.concat_tables([rows, rows])
            bad = pa.array([False] * len(rows) + [True] + [False] * (len(rows) - 1))
            return set_aside(twice, bad, "no")

        found = Street(second_is_bad).rows(READINGS[:2])
        assert (landed(found), {*found.faults}) == ([(1,), (1,)], {0})

    def test_of_which_one_row_is_out_of_range_takes_all_along(self) -> None:
        def grown(rows: pa.Table) -> pa.Table:
            return pa.concat_tables([rows, with_column(rows, "n", pc.multiply(rows["n"], 100))])

        found = Street(grown).rows([{"n": 1}, {"n": 2}, {}])
        assert landed(found, "n") == [(0, 1), (0, 100), (2, None), (2, None)]
        assert found.faults[1].reason is Reason.OUT_OF_RANGE


class TestValueThatDoesNotFit:
    def test_is_a_fault_of_its_record(self) -> None:
        found = Street(lambda rows: with_column(rows, "n", rows["unit"])).rows(
            [{"unit": "12"}, {"unit": "Ann Smith"}, {}]
        )
        assert landed(found, "n") == [(0, 12), (2, None)]
        assert found.faults == {
            1: Fault(Reason.WRONG_TYPE, "n: Ann Smith is not int8", "transform", "n is not int8"),
        }

    def test_is_out_of_range_if_it_is_a_number(self) -> None:
        huge = pa.array([2**63, 5], pa.uint64())
        found = Street(lambda rows: with_column(rows, "n", huge)).rows([{}, {}])
        assert (landed(found, "n"), found.faults[0].reason) == ([(1, 5)], Reason.OUT_OF_RANGE)


# -- functions that break the contract --------------------------------------------------------------------


def of_no_column(rows: pa.Table) -> pa.Table:
    return rows.append_column("x", rows["nothing"])


def of_nothing(rows: pa.Table) -> None:
    pass


def of_data(rows: pa.Table) -> pa.Table:
    raise ValueError(f"strange: {rows['unit'].to_pylist()}") if len(rows) else KeyError


def without_row(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([ROW])


def of_no_record(rows: pa.Table) -> pa.Table:
    return with_column(rows, ROW, pa.array([99] * len(rows)))


def of_null(rows: pa.Table) -> pa.Table:
    return with_column(rows, ROW, pa.nulls(len(rows), pa.int64()))


def of_text(rows: pa.Table) -> pa.Table:
    return with_column(rows, ROW, pa.array(["a"] * len(rows)))


def of_lists(rows: pa.Table) -> pa.Table:
    return with_column(rows, ROW, pa.array([[1]] * len(rows)))


def without_a_field(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["unit"])


def with_a_new_field(rows: pa.Table) -> pa.Table:
    return rows.append_column("celsius", rows["degrees"])


def with_a_name_that_is_data(rows: pa.Table) -> pa.Table:
    return rows.append_column("Ann Smith, 4 High Street", rows["degrees"])


def with_a_field_twice(rows: pa.Table) -> pa.Table:
    return rows.append_column("unit", rows["unit"])


def of_another_type(rows: pa.Table) -> pa.Table:
    return with_column(rows, "n", pa.array([[1]] * len(rows)))


def with_a_fault_that_is_no_text(rows: pa.Table) -> pa.Table:
    return rows.append_column(FAULT, pc.is_null(rows["n"]))


def of_another_service(rows: pa.Table) -> pa.Table:
    raise ConnectionRefusedError(f"strange: {rows}")


REFUSED: list[tuple[Callable[[pa.Table], Any], type[LakehouseError], str]] = [
    (of_no_column, SettingsRefused, "of_no_column can't be applied: KeyError: .*nothing"),
    (of_nothing, SettingsRefused, "of_nothing can't be applied: it returned NoneType and not an Arrow table"),
    (of_data, SettingsRefused, r"of_data can't be applied: ValueError in line \d+ of test_transforms.py$"),
    (without_row, NeedsOperator, "without_row returned no column `_row`, so its rows belong to no record; nothing of"),
    (of_no_record, NeedsOperator, "returned a `_row` that it was not given, .*; let it keep `_row` in every row$"),
    (of_null, NeedsOperator, "returned a `_row` that it was not given"),
    (of_text, NeedsOperator, "returned a column `_row` of the type string"),
    (of_lists, NeedsOperator, r"returned a column `_row` of the type list"),
    (without_a_field, SettingsRefused, "it returned no column unit"),
    (with_a_new_field, SettingsRefused, "it returned the column celsius, which the table does not have"),
    (with_a_name_that_is_data, SettingsRefused, "it returned the column a field, which the table does not have"),
    (with_a_field_twice, SettingsRefused, "it returned two columns with the name unit"),
    (of_another_type, SettingsRefused, r"it returned n as list<.*>, which can't become int8"),
    (with_a_fault_that_is_no_text, SettingsRefused, "it returned `_fault` as bool, and it should be text"),
    (of_another_service, TryAgain, "of_another_service failed: ConnectionRefusedError$"),
]


class TestFunctionThatBreaksItsContract:
    @pytest.mark.parametrize(("function", "error", "says"), REFUSED, ids=lambda each: getattr(each, "__name__", None))
    def test_is_refused_in_one_sentence(
        self, function: Callable[[pa.Table], Any], error: type[LakehouseError], says: str
    ) -> None:
        with pytest.raises(error, match=f"^`streams.transform` .*{says}") as refusal:
            Street(function).rows([{"unit": "Ann Smith"}])
        assert "Ann" not in str(refusal.value)

    def test_may_say_itself_what_is_wrong(self) -> None:
        def superseded(rows: pa.Table) -> pa.Table:
            raise TryAgain(f"a table of {rows.num_rows} names is not there yet")

        with pytest.raises(TryAgain, match="a table of 1 names"):
            Street(superseded).rows([{}])

    def test_without_memory_is_no_mistake_of_the_function(self) -> None:
        def greedy(rows: pa.Table) -> pa.Table:
            raise MemoryError(rows.num_rows)

        with pytest.raises(MemoryError):
            Street(greedy).rows([{}])


# -- the function that the settings name ------------------------------------------------------------------


def chosen(name: str, *, allow_code: bool = False) -> Any:
    settings = load_settings(None, {"streams": [{"topics": ["x"], "transform": name}]}, {})
    return transforms.chosen(settings.streams[0], allow_code=allow_code)


class TestNamedFunction:
    def test_may_be_the_entry_point_of_a_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        offered = EntryPoint("celsius", f"{__name__}:in_celsius", transforms.GROUP)
        monkeypatch.setattr(transforms, "entry_points", lambda **_: [offered])
        monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
        assert chosen("celsius").__name__ == "in_celsius"
        with pytest.raises(SettingsRefused, match="names others, and no package has such an entry point: celsius"):
            chosen("others")

    def test_is_code_and_needs_leave(self) -> None:
        assert chosen("json:dumps", allow_code=True) is json.dumps
        with pytest.raises(SettingsRefused, match="LAKEHOUSE_INGEST_ALLOW_CODE=1"):
            chosen("json:dumps")
        for name in ("nothing_at_all:f", ":f", ".x:f", "json:nothing"):
            with pytest.raises(SettingsRefused, match=f"names {name}, which can't be loaded"):
                chosen(name, allow_code=True)
        with pytest.raises(SettingsRefused, match="names os:sep, which is not a function"):
            chosen("os:sep", allow_code=True)
