"""A dead letter is shown by its shape: nothing of what it says can be read off it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.observe.anonymize import blurred

LONGEST = 200
NAMES = {"name", "n", "ok", "no", "open"}
ASCII_TEXT = st.text(st.characters(codec="ascii"), max_size=20)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=30)
MADE = st.one_of(
    WORDS,
    st.sampled_from(
        ["Ann\n123-45-6789", "x is no Ann 123-45-6789", "a: b is not long", '"Ann": "Ann Smith', "Ann\\", 'Ann\\": 1']
    ),
)


class TestBlurredRecord:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (
                b'{"name": "Ada", "n": 17.5, "ok": true, "no": null}',
                '{"name": "xxx", "n": 00.0, "ok": true, "no": null}',
            ),
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
    def test_shows_the_shape_of_its_value(self, value: bytes | None, shown: str | None) -> None:
        assert blurred(value, LONGEST, NAMES) == shown

    @given(st.binary(max_size=100))
    def test_shows_no_letter_or_digit_of_its_values(self, value: bytes) -> None:
        shown = blurred(value, LONGEST, NAMES)
        assert shown is not None
        rest = shown.replace("true", "").replace("false", "").replace("null", "") if '"' not in shown else ""
        assert set(rest) <= set("x0·…") | set(map(chr, range(0x20, 0x7F))) - set("abcdefghijklmnopqrstuvwyz123456789")

    @given(st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), ASCII_TEXT | st.integers() | st.booleans()))
    def test_keeps_field_names_and_length(self, record: dict[str, object]) -> None:
        text = json.dumps(record)
        shown = blurred(text.encode(), 10_000, record)
        assert shown is not None
        assert len(shown) == len(text)
        assert all(json.dumps(name) + ":" in shown for name in record)
        values = [value for value in record.values() if isinstance(value, str) and len(value) > 5 and value.isalpha()]
        assert not any(f'"{value}"' in shown for value in values if set(value) != {"x"})

    @given(
        st.dictionaries(MADE, st.one_of(MADE, st.integers(10_000), st.lists(MADE)), min_size=1),
        st.tuples(st.booleans(), st.integers(0, 200)),
    )
    def test_shows_no_four_characters_of_a_value_or_unknown_key(
        self,
        record: dict[str, object],
        how: tuple[bool, int],
    ) -> None:
        """Whatever they look like, however they are written, and wherever they are cut off."""
        escaped, cut = how
        text = json.dumps({**record, "name": record}, ensure_ascii=escaped)
        shown = blurred(text.encode()[:-cut] if cut else text.encode(), 10_000, {"name"})
        assert shown is not None
        _nothing_of(record, shown.replace('"name":', ""))

    @given(WORDS, st.sampled_from([b"", b"\xff", b"{", b'"', b'{"a": ']))
    def test_that_is_no_json_shows_nothing_of_its_text(self, text: str, before: bytes) -> None:
        shown = blurred(before + text.encode(), 10_000, {"name"})
        assert shown is not None
        _nothing_of({"": text.replace("true", "").replace("false", "").replace("null", "")}, shown)


def _nothing_of(record: dict[str, object], shown: str) -> None:
    """Of their letters and digits in a row, x and 0 aside: those are what anything is shown as."""
    said = " ".join([*record, *map(str, record.values())])
    for word in re.findall(r"[^\W_]{4,}", said):
        for four in (word[at : at + 4] for at in range(len(word) - 3)):
            assert set(four) <= set("x0") or four not in shown, (four, shown)
