"""What was seen of fields: the same in whatever order and by however many readers, and never too much."""

import datetime as dt
import pickle
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.schema import seen
from lakehouse_ingest.schema.seen import SeenFields, SeenValues
from lakehouse_ingest.schema.values import Real, Tree, Value
from tests.services.seen_fields import value_of

NUMBERS = st.integers() | st.floats(allow_nan=False).map(lambda number: Real(repr(number)))
TEXTS = st.text(max_size=3) | st.sampled_from(
    ["2024-05-06", "2024-05-06T07:08:09Z", "2024-05-06T07:08", "1714979289", "1.7e12", "2024-02-30", "-", "nan"]
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | st.sampled_from([1714979289, 1714979289123, 0, Real("1.50")])
NAMES = st.sampled_from("abcdefgh")
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=6)


def seen_in(*values: Value) -> SeenValues:
    found = SeenValues()
    for value in values:
        found.add(value)
    return found


def fields_in(records: list[Tree], first: str = "") -> SeenFields:
    found = SeenFields(first.split())
    for record in records:
        found.add(record)
    return found


def together(*parts: SeenFields) -> SeenFields:
    def both(one: SeenFields, other: SeenFields) -> SeenFields:
        one.merge(other)
        return one

    return reduce(both, parts, SeenFields(parts[0].first))


class TestWhatSeveralReadersSaw:
    @given(RECORDS, RECORDS, RECORDS, st.booleans())
    def test_is_what_one_would_have_seen(self, a: list[Tree], b: list[Tree], c: list[Tree], few: bool) -> None:  # noqa: FBT001
        with pytest.MonkeyPatch.context() as patch:
            if few:
                patch.setattr(seen, "MOST_FIELDS", 3)
                patch.setattr(seen, "MOST_WITHIN", 12)
            whole = fields_in([*a, *b, *c], "d")
            one, two, three = (fields_in(part, "d") for part in (a, b, c))
            before = pickle.dumps((one, two, three))
            assert together(one, two, three) == whole
            assert together(three, one, two) == whole
            assert together(one, together(two, three)) == whole
            assert together(*pickle.loads(before)) == whole
            assert pickle.loads(before) == (one, two, three), "what is merged into another doesn't change"
            assert fields_in([*c, *reversed(b), *a], "d") == whole

    @given(RECORDS)
    def test_has_a_size_that_counts_all_that_is_kept(self, records: list[Tree]) -> None:
        def counted(found: SeenValues) -> int:
            within = [*found.fields.values(), *([found.elements] if found.elements else [])]
            return 1 + sum(map(counted, within))

        for found in together(fields_in(records), fields_in(records)).fields.values():
            assert found.size == counted(found)


class TestKeysWithoutEnd:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen, "MOST_FIELDS", 100)
        monkeypatch.setattr(seen, "MOST_WITHIN", 1_000)

    def test_in_records_leave_the_first_by_name_and_those_that_matter(self) -> None:
        found = fields_in([{f"k{number:04}": number, "zone": 1, "y": 2} for number in reversed(range(3_000))], "zone")
        assert [*sorted(found.fields)] == [*(f"k{number:04}" for number in range(100)), "zone"]
        assert found.last == "k0099"
        assert found.fields["zone"].kinds == {"number": 3_000}
        assert fields_in([{"zone": 1, "y": 2}], "zone").last is None

    def test_in_records_are_forgotten_on_the_way(self) -> None:
        found = SeenFields()
        most = 0
        for number in range(20_000):
            found.add({f"k{(number * 7919) % 20_011:05}": 1})
            most = max(most, len(found._fields))
        assert most <= 1_024

    def test_in_an_object_leave_its_json_text_and_harm_no_neighbour(self) -> None:
        found = fields_in([{"place": {"lat": 1}, "users": {f"k{number}": {"n": 1}}} for number in range(600)])
        assert found.fields["users"].cut
        assert (found.fields["users"].kinds, found.fields["users"].fields) == ({"object": 600}, {})
        assert [*found.fields["place"].fields] == ["lat"]
        assert found.last is None

    def test_at_all_depths_are_bounded_together(self) -> None:
        for within in (5, 50):
            found = fields_in(
                [{f"f{field}": {f"k{record}.{field}": 1} for field in range(50)} for record in range(within)]
            )
            assert any(each.cut for each in found.fields.values()) is (within > 5)
            assert sum(each.size for each in found.fields.values()) <= 1_000

    @pytest.mark.parametrize("levels", [21, 22, 200])
    def test_one_in_the_other_are_followed_to_the_deepest_level_of_a_column(self, levels: int) -> None:
        for opening, closing in (('{"a":', "}"), ("[", "]")):
            found = seen_in(value_of(opening * levels + "1" + closing * levels))
            assert found.size == min(levels, 21) + 1
            while inner := found.elements or found.fields.get("a"):
                found = inner
            assert found.cut is (levels > 21)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "sizes", "digits"),
        [
            ("0", {"int"}, {(0, 0)}),
            (str(2**31 - 1), {"int"}, {(10, 0)}),
            (str(-(2**31)), {"int"}, {(10, 0)}),
            (str(2**31), {"long"}, {(10, 0)}),
            (str(-(2**63)), {"long"}, {(19, 0)}),
            (str(2**63), {"decimal(38,0)"}, {(19, 0)}),
            ("9" * 38, {"decimal(38,0)"}, {(38, 0)}),
            ("1" + "0" * 38, {"double"}, set()),
            ("1.50", {"double"}, {(1, 1)}),
            ("-0.0010", {"double"}, {(0, 3)}),
            ("12345.5", {"double"}, {(5, 1)}),
            ("1e3", {"double"}, {(4, 0)}),
            ("1.25e1", {"double"}, {(2, 1)}),
            ("120e-1", {"double"}, {(2, 0)}),
            ("5e-3", {"double"}, {(0, 3)}),
            ("0e5", {"double"}, {(0, 0)}),
            ("1e400", {"double"}, set()),
            ("1e999999999999", {"double"}, set()),
            ("NaN", {"double"}, set()),
            ("-Infinity", {"double"}, set()),
        ],
    )
    def test_say_which_type_and_digits_they_need(self, text: str, sizes: set[str], digits: set[Any]) -> None:
        found = seen_in(value_of(text))
        assert (found.kind, set(found.sizes), set(found.digits)) == ("number", sizes, digits)

    @pytest.mark.parametrize(
        ("text", "beyond"),
        [
            ("3.4e38", False),
            ("3.40282350e38", False),
            ("3.40282357e38", True),
            ("-1e39", True),
            ("1e309", False),
            ("9" * 39, True),
            ("9" * 400, False),
        ],
    )
    def test_say_whether_a_float_is_too_small(self, text: str, beyond: bool) -> None:  # noqa: FBT001
        assert seen_in(value_of(text)).beyond_float is beyond

    @given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=9))
    def test_have_the_digits_of_their_plain_text_however_they_are_written(self, number: Decimal) -> None:
        plain = seen_in(Real(f"{number:f}"))
        assert plain.digits == seen_in(Real(f"{number:e}")).digits == seen_in(number).digits
        ((whole, fraction),) = plain.digits
        assert (Fraction(number) * 10**fraction).denominator == 1
        assert fraction == 0 or (Fraction(number) * 10 ** (fraction - 1)).denominator > 1
        assert int(10 ** (whole - 1)) <= abs(Fraction(number)) < 10**whole


class TestRecords:
    def test_that_lack_a_field_are_noticed(self) -> None:
        found = fields_in([{"a": 1, "b": 1, "c": []}, {"a": "x", "b": None, "c": 5}])
        assert found.lacking(["a", "b", "c", "d"]) == {"b", "d"}
        assert together(found, fields_in([{"b": 1}])).lacking("abc") == {"a", "b", "c"}
        assert SeenFields().lacking(["a"]) == frozenset()


class TestKinds:
    def test_are_counted_for_each_type_of_python(self) -> None:
        now = dt.datetime.now(dt.UTC)
        found = seen_in(None, True, 1, Real("1.5"), Decimal(1), 1.5, "x", b"x", now.date(), now, [], {}, [None])
        assert found.kinds == {
            "boolean": 1, "number": 4, "string": 1, "binary": 1, "date": 1, "timestamptz": 1, "list": 2, "object": 1,
        }  # fmt: skip
        assert (found.kind, found.usual_kind) == (None, None)

    def test_are_usual_from_nine_of_ten_on(self) -> None:
        assert seen_in(*[1] * 9, "x", None).usual_kind == "number"
        assert seen_in(*[1] * 8, "x").usual_kind is None
        assert seen_in(None).usual_kind is None


class TestTexts:
    @pytest.mark.parametrize(
        ("text", "times"),
        [
            ("2024-05-06", {"iso": 1, "date": 1}),
            ("2024-05-06T07:08:09Z", {"iso": 1, "timestamptz": 1}),
            ("2024-05-06 07:08:09,123456 +02", {"iso": 1, "timestamptz": 1}),
            ("2024-05-06T07:08:09", {"iso": 1}),
            ("2024-05-06T07:08:09.1234567Z", {"iso": 1}),
            ("2024-05-06T07:08Z", {"iso": 1}),
            ("2024-02-30", {}),
            ("1714979289", {"s": 1}),
            ("1714979289123.5", {"ms": 1}),
            ("1_714_979_289", {}),
            ("-5", {}),
            ("", {}),
            ("1" * 5000, {}),
        ],
    )
    def test_say_whether_they_are_times(self, text: str, times: dict[str, int]) -> None:
        found = seen_in(text)
        assert (found.kind, found.times) == ("string", times)
