"""The reference decoder of JSON: each bad value gets exactly its reason, each good one its fields."""

import sys
import time
from typing import Any

import pytest

from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages.formats import ColumnarFormat
from lakehouse_ingest.stages.formats import json_object as json_format
from lakehouse_ingest.stages.formats.json_object import tree
from lakehouse_ingest.stages.records import Fault, Real

LATIN_1 = '{"utf8": "é"}'.encode("latin-1")
BROKEN: dict[str, tuple[str | bytes | None, Reason]] = {
    "tombstone": (None, Reason.EMPTY),
    "empty": ("", Reason.EMPTY),
    "spaces": ("   ", Reason.EMPTY),
    "other whitespace": ("\n\t \r\n", Reason.EMPTY),
    "a form feed": ("\f", Reason.BROKEN),
    "not JSON": ("hello", Reason.BROKEN),
    "cut": ('{"int64": 5', Reason.BROKEN),
    "cut in a name": ('{"int', Reason.BROKEN),
    "cut in a text": ('{"utf8": "abc', Reason.BROKEN),
    "cut in an escape": ('{"utf8": "abc\\', Reason.BROKEN),
    "garbage behind": ('{"int64": 5}x', Reason.BROKEN),
    "garbage behind a space": ('{"int64": 5} }', Reason.BROKEN),
    "a comma behind": ('{"int64": 5},', Reason.BROKEN),
    "a byte of zero behind": ('{"int64": 5}\x00', Reason.BROKEN),
    "two objects": ('{"int64": 5}{"int64": 6}', Reason.BROKEN),
    "two objects in two lines": ('{"int64": 5}\n{"int64": 6}', Reason.BROKEN),
    "two objects and a comma": ('{"int64": 5},{"int64": 6}', Reason.BROKEN),
    "two lists' worth": ('{"int64": 5}],"x":[6', Reason.BROKEN),
    "closes what is around it": ('{"int64": 5}]}', Reason.BROKEN),
    "garbage before": ('x{"int64": 5}', Reason.BROKEN),
    "a byte order mark": ('\ufeff{"int64": 5}', Reason.BROKEN),
    "a comma too many": ('{"int64": 5,}', Reason.BROKEN),
    "single quotes": ("{'int64': 5}", Reason.BROKEN),
    "no quotes": ("{int64: 5}", Reason.BROKEN),
    "a comment": ('/* c */ {"int64": 5}', Reason.BROKEN),
    "a literal of nobody's": ('{"boolean": yes}', Reason.BROKEN),
    "a leading zero": ('{"int64": 05}', Reason.BROKEN),
    "a plus sign": ('{"int64": +5}', Reason.BROKEN),
    "digits of another script": ('{"int64": ٣}', Reason.BROKEN),
    "a space that JSON does not know": ('{"int64":\u00a05}', Reason.BROKEN),
    "a control character in a text": ('{"utf8": "a\x01b"}', Reason.BROKEN),
    "an escape of nobody's": (r'{"utf8": "\x41"}', Reason.BROKEN),
    "nested beyond any parser": ('{"utf8": ' + "[" * 5000 + "]" * 5000 + "}", Reason.BROKEN),
    "nested one level too deep": ('{"zzz": ' + "[" * 200 + "]" * 200 + "}", Reason.BROKEN),
    "opened a million times": ('{"zzz": ' + "[" * 1_000_000, Reason.BROKEN),
    "a number of 1500 digits": ('{"int64": ' + "9" * 1500 + "}", Reason.BROKEN),
    "a fraction of 1500 digits": ('{"int64": 0.' + "9" * 1500 + "}", Reason.BROKEN),
    "a number of a million digits": ('{"int64": ' + "9" * 1_000_000 + "}", Reason.BROKEN),
    "a list, and more": ("[1] 2", Reason.BROKEN),
    "an array": ("[]", Reason.NOT_OBJECT),
    "an array of objects": ('[{"int64": 5}]', Reason.NOT_OBJECT),
    "an integer": ("5", Reason.NOT_OBJECT),
    "a fraction": ("1.5", Reason.NOT_OBJECT),
    "no number": ("NaN", Reason.NOT_OBJECT),
    "a text": ('"abc"', Reason.NOT_OBJECT),
    "an empty text": ('""', Reason.NOT_OBJECT),
    "true": ("true", Reason.NOT_OBJECT),
    "null": ("null", Reason.NOT_OBJECT),
    "bytes of no encoding": (b"\xff\xfe\x00", Reason.NOT_TEXT),
    "latin-1 in a text": (LATIN_1, Reason.NOT_TEXT),
    "half of a pair in UTF-8": (b'{"utf8": "\xed\xa0\xbd"}', Reason.NOT_TEXT),
    "too long a form of a character": (b'{"utf8": "\xc0\x80"}', Reason.NOT_TEXT),
    "half a pair of code units": (r'{"utf8": "\ud83d!"}', Reason.NOT_TEXT),
    "the other half": (r'{"utf8": "\uDE00"}', Reason.NOT_TEXT),
    "the other half behind an escaped first one": (r'{"utf8": "\\ud83d\ude00"}', Reason.NOT_TEXT),
    "both halves, but two of the first": (r'{"utf8": "\ud83d\ud83d\ude00"}', Reason.NOT_TEXT),
    "half a pair in a name": (r'{"\ud800": 1}', Reason.NOT_TEXT),
    "half a pair in a value that does not count": (r'{"a": "\ud800", "a": 1}', Reason.NOT_TEXT),
    "half a character": ('{"utf8": "é"}'.encode()[:-3] + b'"}', Reason.NOT_TEXT),
}
SAID = [
    (None, "the value is empty"),
    ("x", "the value is not JSON"),
    ("[" * 201, "not JSON, or more than 200 levels deep"),
    ('{"a":' * 10_000 + "}" * 10_000, "not JSON, or more than 200 levels deep"),
    ('{"a": 1} 2', "something follows the JSON object"),
    ("[1]", "a list where an object is expected"),
    ("5", "a number where an object is expected"),
    ("-0.5", "a number where an object is expected"),
    ("true", "a boolean where an object is expected"),
    ('"secret"', "a text where an object is expected"),
    ("null", "null where an object is expected"),
    (b"\xff", "the value is not UTF-8"),
    (r'{"a": "\ud83d"}', "half a character, such as \\ud83d without what follows"),
]
SOUND: list[tuple[str, Any]] = [
    ("{}", {}),
    ('{"zzz": [1, {"deep": null}]}', {"zzz": [1, {"deep": None}]}),
    (' \n{"int64": 1}\t ', {"int64": 1}),
    (r'{"utf8": "two\nlines \ud83d\ude00 \u0000"}', {"utf8": "two\nlines 😀 \x00"}),
    (r'{"utf8": "\\ud83d \\\\uDE00"}', {"utf8": r"\ud83d \\uDE00"}),
    ('{"utf8": "\x7f\u2028"}', {"utf8": "\x7f\u2028"}),
    ('{"int64": 1, "int64": 2}', {"int64": 2}),
    ('{"int64": null}', {"int64": None}),
    ('{"_": 1, "_record": 3, "_fault": 5, "_source": 6}', {"_": 1, "_record": 3, "_fault": 5, "_source": 6}),
    ('{"INT64": 1, "int64": 2}', {"INT64": 1, "int64": 2}),
    ('{"": {"": true}}', {"": {"": True}}),
    ('{"a": -0, "b": 12345678901234567890123}', {"a": 0, "b": 12345678901234567890123}),
    ('{"a": "' + "[" * 500 + '"}', {"a": "[" * 500}),
    ('{"a": ' + "9" * 1000 + "}", {"a": int("9" * 1000)}),
]


def given(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def fault_of(value: str | bytes | None) -> Fault:
    found = tree(given(value))
    assert isinstance(found, Fault)
    return found


class TestBrokenValue:
    @pytest.mark.parametrize("name", BROKEN)
    def test_gets_its_reason(self, name: str) -> None:
        value, reason = BROKEN[name]
        found = fault_of(value)
        assert (found.reason, found.stage) == (reason, "decode")

    @pytest.mark.parametrize(("value", "words"), SAID)
    def test_is_described_in_words_that_show_nothing_of_it(self, value: str | bytes | None, words: str) -> None:
        assert (fault_of(value).detail, fault_of(value).told) == (words, words)

    @pytest.mark.parametrize(
        "piece",
        ['\\"', '"', "\\", "[", "]", "{", '{"a":', "[1,", "\\ud83d", "9", "-", "1e", " ", '"a":"\\u0000",', "[{}]"],
    )
    def test_is_read_in_time_that_grows_with_its_length(self, piece: str) -> None:
        for before in ("", '{"a": ', '{"a": "'):
            started = time.process_time()
            fault_of(before + piece * (300_000 // len(piece)) + "!")
            assert time.process_time() - started < 5, "300 kB take milliseconds unless the time grows faster"


class TestSoundValue:
    @pytest.mark.parametrize(("text", "fields"), SOUND)
    def test_has_its_fields(self, text: str, fields: Any) -> None:
        assert tree(text.encode()) == fields

    def test_may_be_large_and_200_levels_deep(self) -> None:
        assert tree(b'{"a": "' + b"x" * 1_000_000 + b'"}') == {"a": "x" * 1_000_000}
        for deep in (
            '{"a":' * 200 + "1" + "}" * 200,
            '{"a":' + "[" * 199 + "]" * 199 + "}",
            '{"a":[[]],"b":[' + "{}," * 300 + "1]}",
        ):
            assert isinstance(tree(deep.encode()), dict)

    @pytest.mark.parametrize(
        "text",
        [
            "1.50",
            "1e3",
            "-0.0",
            "1E+2",
            "1e400",
            "-1e400",
            "1e-400",
            "NaN",
            "Infinity",
            "-Infinity",
            "1e99999999999999999999",
        ],
    )
    def test_keeps_the_text_of_a_number_with_a_fraction(self, text: str) -> None:
        found = tree(f'{{"a": {text}}}'.encode())
        assert isinstance(found, dict)
        assert isinstance(found["a"], Real)
        assert found["a"].text == text


class TestReferenceDecoder:
    def test_is_part_of_a_format_with_a_fast_decoder(self) -> None:
        assert isinstance(json_format, ColumnarFormat)

    def test_calls_the_end_of_our_own_stack_no_fault(self) -> None:
        """Our own mistakes are exceptions, or they would cost a sound record."""
        value = b'{"a":' + b"[" * 190 + b"]" * 190 + b"}"

        def below(calls: int) -> object:
            return below(calls - 1) if calls else tree(value)

        for calls in range(0, sys.getrecursionlimit(), 20):
            try:
                assert isinstance(below(calls), dict)
            except RecursionError:
                return
