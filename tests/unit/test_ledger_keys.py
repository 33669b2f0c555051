"""The one list of what we leave in tables: complete, without doubles, and the same in both packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

from catalog import commits, probes
from lakehouse_ingest.ledger import keys
from lakehouse_ingest.ledger.keys import BRANCH, DURABLE, PREFIX, PROBE, PUBLISHED, DurablePlace

ROOT = Path(__file__).parents[2]


def texts_of(path: Path) -> Iterator[str]:
    """Every text of a module, with the text parts of f-strings, but no docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


class TestDurableKeys:
    def test_include_every_name_of_the_module(self) -> None:
        listed = {key.name for key in DURABLE}
        defined = {
            value
            for name, value in vars(keys).items()
            if name.isupper() and not name.startswith("_") and isinstance(value, str)
        }
        assert defined - listed == {PREFIX, keys.GUESSED}

    def test_are_listed_once(self) -> None:
        names = [(key.place, key.name) for key in DURABLE]
        assert len(names) == len(set(names))

    def test_have_a_sentence_as_their_meaning(self) -> None:
        assert [key.name for key in DURABLE if not key.meaning.endswith(".")] == []

    def test_are_written_out_in_one_module_only(self) -> None:
        """A key that is written elsewhere would be missing in the list, and on the page that is made from it."""
        ours = {key.name for key in DURABLE if key.name.startswith(PREFIX)}
        ours -= {keys.REGISTERED}  # the gauges of a table begin so as well
        found = {
            (path.relative_to(ROOT).as_posix(), text)
            for path in (ROOT / "lakehouse_ingest").rglob("*.py")
            if path.name != Path(keys.__file__).name
            for text in texts_of(path)
            if text in ours
        }
        assert found == set()

    def test_have_the_same_names_in_the_catalog_package(self) -> None:
        """It may import nothing of ours."""
        assert commits._note_key("x") == f"{PUBLISHED}x"
        assert f"{{namespace}}.{PROBE}" in Path(probes.__file__).read_text(encoding="utf-8")
        assert {key.name for key in DURABLE if key.place is DurablePlace.REF} == {BRANCH}
