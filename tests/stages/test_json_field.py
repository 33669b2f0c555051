"""The text of one field, which is the type of a record."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from lakehouse_ingest.stages.formats import json_object as json_format
from lakehouse_ingest.stages.records import Fault
from lakehouse_ingest.stages.trees import plain_text
from tests.stages.json_records import DECLARED, columns_of, records_of


def texts(values: Sequence[str | bytes | None], *path: str) -> list[str | None]:
    given = [each.encode() if isinstance(each, str) else each for each in values]
    found = json_format.field(pa.array(given, pa.binary()), path)
    assert found.type == pa.string()
    return found.to_pylist()  # type: ignore[no-any-return]


class TestField:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ('"order"', "order"),
            (r'"\u00e9\n\ud83d\ude00"', "é\n😀"),
            ('""', ""),
            ("12", "12"),
            ("1.50", "1.50"),
            ("1E3", "1E3"),
            ("true", "true"),
            ("null", None),
            ('{"a": [1, 1.0, null, "é"]}', '{"a":[1,1.0,null,"é"]}'),
            ("[]", "[]"),
            ("NaN", "NaN"),
        ],
    )
    def test_is_text_as_a_column_of_text_has_it(self, value: str, text: str | None) -> None:
        assert texts([f'{{"other": [{{"type": 5}}], "type": {value}, "more": 1.5}}'], "type") == [text]

    def test_is_found_inside_objects(self) -> None:
        values = ['{"a": {"b": {"c": "x"}}}', '{"a": {"b": "c"}}', '{"a": null}', '{"a.b.c": "x"}', '{"a": [{"b": 1}]}']
        assert texts(values, "a", "b", "c") == ["x", None, None, None, None]

    def test_has_any_name(self) -> None:
        for name in ("a b", "é😀", "", 'a"b', "a\\b", "a\nb", "it", "__init__", "\x00"):
            key = "".join(f"\\u{ord(each):04x}" if ord(each) < 256 else each for each in name)
            assert texts([f'{{"{key}": "x"}}', "{}"], name) == ["x", None]

    def test_is_the_last_one_of_a_name(self) -> None:
        assert texts(['{"a": "x", "a": "y"}', '{"a": "x", "a": null}', '{"a": 1, "a": "y"}'], "a") == ["y", None, "y"]

    def test_is_missing_in_what_is_no_object(self) -> None:
        values = [None, "", "x", "[]", '"type"', "null", '{"type": "a"', b'{"type": "\xff"}', r'{"type": "\ud83d"}']
        assert texts(values, "type") == [None] * len(values)

    def test_of_no_records_is_nothing(self) -> None:
        assert texts([], "type") == []

    def test_agrees_with_the_reference_decoder(self) -> None:
        for seed in range(20):
            dice = random.Random(seed)
            columns, name = columns_of(dice), dice.choice(list(DECLARED))
            records = records_of(columns, dice, 500, damaged=0.5)
            trees = map(json_format.tree, records)
            for record, found, text in zip(records, trees, texts(records, name), strict=True):
                if not isinstance(found, Fault):
                    value = found.get(name)
                    assert text == (None if value is None else plain_text(value)), (seed, name, record)
