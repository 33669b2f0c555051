"""The fast decoder of JSON: it calls a record sound only if the reference decoder agrees in every value."""

import datetime as dt
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_ingest.schema.arrow_types import wire_type
from lakehouse_ingest.schema.columns import ColumnPlan, TablePlan, declared
from lakehouse_ingest.stages.fitting import Fitted, Fitter
from lakehouse_ingest.stages.formats import json_object as json_format
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import Fault, Tree
from tests.stages.json_records import columns_of, records_of

RECORDS = int(os.environ.get("LAKEHOUSE_TEST_RECORDS", "100000"))  # ten million in the long form
AT_ONCE = 5_000


def fitter_of(columns: Sequence[ColumnPlan], *, drops: bool = False) -> Fitter:
    """One for which everything that the columns don't take is a fault or news, unless it drops that."""
    return Fitter(RoutePlan(TablePlan("t", tuple(columns), None, "iso"), following=None if drops else Following()))


def fitted(tree: Tree | Fault, fitter: Fitter) -> Fitted | None:
    """What the record is by the reference decoder; None if it is not sound."""
    if isinstance(tree, Fault):
        return None
    done = fitter.fit(tree)
    return None if done.fault or done.rescued or done.news else done


def bits(values: pa.Array) -> pa.Array:
    """The same values, but 0.0 and -0.0 are two."""
    same = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(values.type)
    return values.view(same) if same else values


def disagreements(
    columns: Sequence[ColumnPlan], records: Sequence[bytes], trees: Sequence[Tree | Fault], *, drops: bool
) -> tuple[list[str], int, int]:
    """The sound records that the reference decoder reads otherwise; how many are sound, by each of the two."""
    data, sound = json_format.columns(pa.array(records, pa.binary()), columns, drops=drops)
    assert len(data) == len(sound) == len(records)
    fitter = fitter_of(columns, drops=drops)
    exact = [fitted(each, fitter) for each in trees]
    numbers = [number for number, each in enumerate(sound.to_pylist()) if each]
    wrong = [f"not sound: {records[number]!r}" for number in numbers if exact[number] is None]
    agreed = [(number, found.values) for number in numbers if (found := exact[number])]
    for place, column in enumerate(columns):
        kind = wire_type(column)
        wanted = bits(pa.array([values[place] for _, values in agreed], kind))
        got = bits(data.field(place).take(pa.array([number for number, _ in agreed], pa.int64())))
        if not got.equals(wanted):
            pairs = zip(agreed, got.to_pylist(), wanted.to_pylist(), strict=True)
            wrong += [
                f"{column.field} is {one} but should be {other}: {records[number]!r}"
                for (number, _), one, other in pairs
                if one != other or str(one) != str(other)
            ] or [f"{column.field} differs"]
    return wrong, len(numbers), sum(each is not None for each in exact)


def read(kind: str, *values: str) -> list[Any]:
    """The values of one column as they are read at once, None for each that is not called sound."""
    records = [f'{{"a": {value}}}'.encode() for value in values]
    data, sound = json_format.columns(pa.array(records, pa.binary()), [declared("a", kind, required=False)])
    return [row["a"] if ok else None for row, ok in zip(data.to_pylist(), sound.to_pylist(), strict=True)]


def sound(columns: Sequence[ColumnPlan], *records: str | None) -> list[bool]:
    given = pa.array([None if each is None else each.encode() for each in records], pa.binary())
    return json_format.columns(given, columns)[1].to_pylist()  # type: ignore[no-any-return]


LONG, TEXT = ColumnPlan("n", "n", "long"), ColumnPlan("text", "text", "string")
FEW = 40  # as many as let the decoder learn


class TestSoundRecord:
    def test_has_the_values_of_its_columns(self) -> None:
        assert read("string", '"a"', "5", "true", "1.50", '{"b": [1, 1E2, "\\u00e9", null]}', "[]", "null") == [
            *("a", "5", "true", "1.50", '{"b":[1,1E2,"é",null]}', "[]", None)
        ]
        assert read("timestamptz", '"2024-05-06T07:08:09Z"', "1714979289000001", "1714979289.50") == [
            *("2024-05-06T07:08:09Z", "1714979289000001", "1714979289.50")
        ]
        assert read("decimal(5,2)", "1.50", "7", "-0.5", "null") == [Decimal("1.5"), 7, Decimal("-0.5"), None]
        assert read("uint64", str(2**64 - 1), "0") == [2**64 - 1, 0]
        assert read("decimal(3,3)", "0.125", "-0.5") == [Decimal("0.125"), Decimal("-0.5")]
        assert read("double", "1", "1.5", "-0.0", "1e-400") == [1.0, 1.5, 0.0, 0.0]
        assert read("date", '"2024-02-29"') == [dt.date(2024, 2, 29)]
        assert read("binary", '"AP8="') == [b"\x00\xff"]
        assert read(
            "struct<at: timestamptz>", '{"at": "2024-05-06T09:08:09+02:00"}', '{"at": 1714979289000000}', "{}"
        ) == [
            {"at": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)},
            {"at": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)},
            {"at": None},
        ]
        assert read("list<struct<n: int>>", '[{"n": 1}, null, {}]', "[]", "null") == [
            [{"n": 1}, None, {"n": None}],
            [],
            None,
        ]
        assert read("map<string, list<int>>", '{"x": [1], "y": null}', "{}") == [[("x", [1]), ("y", None)], []]

    def test_may_lack_fields_and_hold_nothing_in_unknown_ones(self) -> None:
        records = [
            *['{"n": 1, "more": null, "other": []}'] * FEW,
            '{"other": {}}',
            '{"more": 1}',
            '{"other": [1]}',
            "{}",
        ]
        assert sound([LONG], *records) == [*[True] * FEW, True, False, False, True]

    def test_is_found_in_any_order_of_its_fields(self) -> None:
        columns = [ColumnPlan(f"c{number}", f"c{number}", "long") for number in range(30)]
        names = [each.field for each in columns]
        records = [json.dumps(dict.fromkeys(random.Random(seed).sample(names, 20), 1)) for seed in range(FEW)]
        assert all(sound(columns, *records))

    def test_may_have_columns_that_the_fast_decoder_does_not_read(self) -> None:
        """They are null in it. The reference decoder reads all records with other values."""
        columns = [LONG, ColumnPlan("at", "at", "timestamp"), ColumnPlan("q", 'a"b', "long")]
        records = ['{"n": 1}', '{"n": 1, "at": null}', '{"at": "2024-05-06T07:08:09"}', '{"a\\"b": 5}']
        assert sound(columns, *records) == [True, True, False, False]

    def test_is_among_a_batch_of_any_size(self) -> None:
        many = [f'{{"n": {number}}}' for number in range(4_500)]
        many[2_000] = many[4_499] = '{"n": "x"}'
        data, ok = json_format.columns(pa.array([each.encode() for each in ["x", *many]], pa.binary())[1:], [LONG])
        assert [number for number, each in enumerate(ok.to_pylist()) if not each] == [2_000, 4_499]
        assert data.field("n").to_pylist()[:2_000] == list(range(2_000))
        assert sound([LONG]) == []
        assert sound([], "{}", '{"n": 1}') == [True, False]
        assert json_format.columns(pa.array([], pa.binary()), [LONG])[0].type == pa.struct([("n", pa.int64())])


class TestUnsoundRecord:
    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("long", ['"12"', "1.0", "1e2", "true", "[1]", str(2**63), "9" * 1_500, "NaN"]),
            ("int", [str(2**31), "-2147483649"]),
            ("float", ["3.5e38", "1e400", "NaN", "true", '"1.5"']),
            ("double", ["1e309", "-1e400", "Infinity", '"1.5"', "0." + "1" * 1_100]),
            ("boolean", ["1", '"true"', "[]"]),
            ("date", ["19000", '"soon"', '"2024-02-30"', '"2024-05-06T07:08:09Z"', '"2024-5-6"']),
            ("binary", ["5", '"%%%"', '"AP8"']),
            # Arrow makes other numbers of some of these, without an error.
            ("decimal(38,0)", ["3.4028235e38", "981434880388080640457386411547457231329", "1" * 45, "1.5", "true"]),
            ("decimal(5,2)", ['"1.5"', "1000", "1" * 50, "1e99999999999999999999", "[]", '"no number"', "{}"]),
            ("string", [r'"\ud83d"', '"\x01"', "nul", r'{"a": "\ud83d"}', "[" * 300 + "]" * 300]),
            # Right as they are, but not for the fast decoder.
            ("string", ["[" * 960 + "]" * 960, "9" * 1_000]),
            ("date", ['"0000-01-01"']),
            ("struct<n: long>", ["5", '{"n": "x"}', '{"N": 1}', '{"m": 1}', "[]"]),
            ("struct<at: timestamptz>", ['{"at": "soon"}', '{"at": true}']),
            ("list<decimal(5,2)>", ["[1, 2.5, 1000]", '["1"]', "{}"]),
            ("map<string, int>", ['{"x": "y"}', "[]", '{"x": 4294967296}']),
        ],
    )
    def test_leaves_its_neighbours_sound(self, kind: str, values: list[str]) -> None:
        for value in values:
            found = sound([declared("a", kind, required=False)], *["{}", f'{{"a": {value}}}', '{"a": null}'] * FEW)
            assert found[:3] == [True, False, True], value
            assert found == found[:3] * FEW

    def test_is_one_with_a_value_that_no_later_one_covers_up(self) -> None:
        """A reader of the whole record refuses it, although of a key that comes twice only the last value counts."""
        deep = "[" * 250 + "]" * 250
        values = [deep, "9" * 1_200, '"\\ud83d"', "01"]
        for column in (TEXT, ColumnPlan("text", "text", "decimal(5,2)")):
            assert sound([column], *[f'{{"text": {each}, "text": 1}}' for each in values]) == [False] * len(values)

    def test_is_any_that_is_no_object(self) -> None:
        records = [None, "", " ", "null", "[]", "5", '"n"', '{"n": 1', '{"n": 1}}', '{"n": 1}{"n": 1}', "\ufeff{}"]
        assert sound([LONG], *records) == [False] * len(records)


class TestRandomRecords:
    @pytest.mark.timeout(300 + RECORDS // 1_000)
    def test_agree_with_the_reference_decoder(self) -> None:
        """Exactly, and where other fields are dropped."""
        fast, exact = Counter[bool](), Counter[bool]()
        for seed in range(RECORDS // AT_ONCE):
            dice = random.Random(seed)
            columns = columns_of(dice)
            records = records_of(columns, dice, AT_ONCE, damaged=dice.choice([0.01, 0.5, 0.9]))
            trees = [*map(json_format.tree, records)]
            for drops in (False, True):
                wrong, of_fast, of_exact = disagreements(columns, records, trees, drops=drops)
                assert not wrong, f"seed {seed}, drops {drops}: {len(wrong)}, such as {wrong[:3]}"
                fast[drops] += of_fast
                exact[drops] += of_exact
        # A name that a sender spoils is another one each time, and only names that come again are learned.
        for drops, share in ((False, 0.9), (True, 0.8)):
            assert fast[drops] > share * exact[drops], "the fast decoder leaves too much to the reference decoder"


class TestOtherFields:
    def test_are_dropped_at_once_where_they_are_to_be(self) -> None:
        records = [f'{{"n": {n}, "more": {{"deep": ["x", {n}.5]}}, "text": "t", "o": 1e400}}' for n in range(FEW)]
        given = pa.array(
            [each.encode() for each in [*records, '{"n": 1, "more": "\\ud83d"}', '{"n": 1, "z": NaN}']], pa.binary()
        )
        data, ok = json_format.columns(given, [LONG, TEXT], drops=True)
        assert ok.to_pylist() == [True] * FEW + [False] * 2
        assert data.to_pylist()[:2] == [{"n": 0, "text": "t"}, {"n": 1, "text": "t"}]
        assert not any(json_format.columns(given, [LONG, TEXT])[1].to_pylist())
