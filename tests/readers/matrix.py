"""Which reader answers what: kept as JSON by `make readers`, printed by a page.

python -m tests.readers.matrix     # puts the table into the page again
"""

import datetime as dt
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.readers.questions import QUESTIONS
from tests.readers.reading import READERS, STORES, Reader

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "limits.md"
KEPT = Path(__file__).with_name("matrix.json")
VARIABLE = "LAKEHOUSE_TEST_MATRIX"
TITLES = {"files": "tables on local files", "s3": "tables on S3"}
BEGIN, END = "<!-- readers: written by `make readers` -->\n", "<!-- /readers -->\n"


@dataclass
class Matrix:
    """By reader and store: of each question nothing, or why it can't be answered."""

    versions: dict[str, str] = field(default_factory=dict)
    answers: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def note(self, reader: Reader, question: str) -> None:
        self.versions[reader.name] = reader.version()
        stores = self.answers.setdefault(reader.name, {})
        stores.setdefault(reader.store.name, {})[question] = reader.cannot.get(question, "")

    @property
    def whole(self) -> bool:
        wanted = {
            (kind.name, store, each.name)
            for kind in READERS
            for store in STORES
            if store not in kind.without
            for each in QUESTIONS
        }
        found = {
            (name, store, question)
            for name, stores in self.answers.items()
            for store, answered in stores.items()
            for question in answered
        }
        return wanted == found

    def keep(self) -> None:
        if (path := os.environ.get(VARIABLE)) and self.whole:
            found = {
                "date": dt.datetime.now(dt.UTC).date().isoformat(),
                "versions": self.versions,
                "answers": self.answers,
            }
            Path(path).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def shown(found: dict[str, Any]) -> str:
    """As a table with notes, for the page."""
    names = list(found["versions"])
    titles = {name: f"{name} {found['versions'][name]}" for name in names}
    notes: list[str] = []

    def said(name: str, reasons: Iterable[str]) -> str:
        told = [f"{titles[name]}: {each}" for each in sorted(set(reasons) - {""})]
        notes.extend(each for each in told if each not in notes)
        return f"no ({', '.join(str(notes.index(each) + 1) for each in told)})" if told else "yes"

    def stored(name: str, store: str) -> str:
        return said(name, [kind.without.get(store, "") for kind in READERS if kind.name == name])

    def cell(name: str, question: str) -> str:
        return said(name, [answers[question] for answers in found["answers"][name].values()])

    lines = [
        f"| on {found['date']} | {' | '.join(titles.values())} |",
        "|---" * (len(names) + 1) + "|",
        *(f"| {words} | {' | '.join(stored(name, store) for name in names)} |" for store, words in TITLES.items()),
        *(f"| {each.asked} | {' | '.join(cell(name, each.name) for name in names)} |" for each in QUESTIONS),
    ]
    told = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", *told]).strip() + "\n"


def in_page(text: str) -> str:
    """What stands there between the two marks."""
    return text.partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def renewed(text: str, table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), shown(kept())), encoding="utf-8")
