"""A dead letter is shown by its shape: nothing of what it says can be read off it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.blurring import blurred, blurred_detail

LONGEST = 200
ASCII_TEXT = st.text(st.characters(codec="ascii"), max_size=20)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"name": "Ada", "n": 17.5, "ok": true, "no": null}', '{"name": "xxx", "n": 00.0, "ok": true, "no": null}'),
        ('{"name": "Jürgen 漢字"}'.encode(), '{"name": "xxxxxx xx"}'),
        (b'{"ada@example.com": 1}', '{"xxx@xxxxxxx.xxx": 0}'),
        (b'{"0711 123": {"a b": 1}}', '{"0000 000": {"x x": 0}}'),
        (b'{"open": "never cl', '{"open": "xxxxx xx'),
        (b"trueish nullable", "xxxxxxx xxxxxxxx"),
        (b"\x00\xff\n", "·····"[:3]),
        (b"", ""),
        (None, None),
        (b"a" * 300, "x" * LONGEST + "…"),
    ],
)
def test_what_is_shown_of_a_record(value: bytes | None, shown: str | None) -> None:
    assert blurred(value, LONGEST) == shown


@given(st.binary(max_size=100))
def test_no_letter_and_no_digit_comes_through_unless_as_a_field(value: bytes) -> None:
    shown = blurred(value, LONGEST)
    assert shown is not None
    rest = shown.replace("true", "").replace("false", "").replace("null", "") if '"' not in shown else ""
    assert set(rest) <= set("x0·…") | set(map(chr, range(0x20, 0x7F))) - set("abcdefghijklmnopqrstuvwyz123456789")


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), ASCII_TEXT | st.integers() | st.booleans()))
def test_names_of_fields_and_the_shape_are_kept(record: dict[str, object]) -> None:
    text = json.dumps(record)
    shown = blurred(text.encode(), 10_000)
    assert shown is not None
    assert len(shown) == len(text)
    assert all(json.dumps(name) + ":" in shown for name in record)
    values = [value for value in record.values() if isinstance(value, str) and len(value) > 5 and value.isalpha()]
    assert not any(f'"{value}"' in shown for value in values if set(value) != {"x"})


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ('level: "seventeen" is not double', 'level: "xxxxxxxxx" is not double'),
        ("n: 4711 is not int; m: x7 is not long", "n: 0000 is not int; m: x0 is not long"),
        ("ts_ms: 12 is no time in ms", "ts_ms: 00 is no time in ms"),
        ("ts_ms is missing", "ts_ms is missing"),
        ("the value is not JSON", "the value is not JSON"),
        (None, ""),
    ],
)
def test_what_was_wrong_is_told_without_the_value(detail: str | None, shown: str) -> None:
    assert blurred_detail(detail) == shown
