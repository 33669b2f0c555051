"""Pages lead to what there is, name tests that exist, and use the words of the glossary."""

import re
from pathlib import Path

import pytest

from tests.services.pages import ROOT, Page, pages

PAGES = pages()
README, GLOSSARY = Page(ROOT / "README.md"), Page(ROOT / "docs" / "concepts" / "glossary.md")
PROOFS = Page(ROOT / "docs" / "development" / "proofs.md")
LONGEST = 200  # lines of the README
WIDEST = 135  # characters of a line
# By the glossary's retired word, how it is found in prose. Some are retired in one meaning only.
RETIRED = {
    "land (as a verb), landing": r"lands?|landings?",
    "batch record": r"batch records?",
    "set aside": r"sets? aside|setting aside",
    "shut out": r"shuts? out",
    "made anew": r"ma(?:d|k)es? anew",
    "hole of the log": r"holes? (?:of|in) the log",
    "question (that stops a start)": r"(?:blocking )questions?|questions? (?:that|which) (?:stops?|keeps?)",
    "recount": r"recount(?:s|ed|ing)?",
    "mend": r"mend(?:s|ed|ing)?",
    "heed": r"heed(?:s|ed|ing)?",
    "plumbing": r"plumbing",
    "told, tell (of a metric or an event)": r"(?:metrics?|events?|spans?) (?:is|are|was|were) told",
    "staged (of rows)": r"(?:re)?staged|restaging",
    "the street": r"the street",
}
a_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def place_of(link: str, page: Page) -> tuple[Path, str]:
    path, _, anchor = link.partition("#")
    return ((page.path.parent / path).resolve() if path else page.path), anchor


def broken(link: str, page: Page) -> bool:
    path, anchor = place_of(link, page)
    if not path.exists() or not path.is_relative_to(ROOT):
        return True
    return bool(anchor) and path.suffix == ".md" and anchor not in Page(path).anchors


@a_page
def test_links_of_a_page_lead_somewhere(page: Page) -> None:
    nowhere = [link for link in page.links if broken(link, page)]
    assert not nowhere, f"{page.name} leads nowhere: {', '.join(nowhere)}"


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = Page(tmp_path / "page.md")
    page.path.write_text(
        "# One `two`, three\n[a](#one-two-three) [b](#four) [c](gone.md) [d](https://example.com/gone)"
    )
    assert page.anchors == {"one-two-three"}
    assert page.links == ["#one-two-three", "#four", "gone.md"]


def test_every_page_is_in_the_index() -> None:
    index = Page(ROOT / "docs" / "index.md")
    listed = {place_of(link, index)[0] for link in index.links}
    written = {page.path for page in PAGES if page.path.is_relative_to(ROOT / "docs")}
    assert written - listed == {index.path}


@a_page
def test_tests_that_a_page_names_exist(page: Page) -> None:
    for path, names in page.tests:
        assert (ROOT / path).exists(), path
        for name in names:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"\b(?:def|class) {name}\b", text), f"{path}::{name}"


def test_every_promise_names_its_test() -> None:
    rows = [line for line in PROOFS.text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 60
    unproven = [row for row in rows if not re.search(r"\btests/\w+", row)]
    assert not unproven, f"{PROOFS.name} names no test: {unproven[0]}"
    promised = README.text.partition("## What is promised")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n)", promised, re.DOTALL | re.MULTILINE)
    assert len(items) == 10
    unproven = [item for item in items if not re.search(r"\]\(tests/\w+/test_\w+\.py\)", item)]
    assert not unproven, f"{README.name} names no test: {unproven[0]}"


def test_the_readme_is_short_and_says_first_what_keeps_somebody_from_using_it() -> None:
    lines = README.text.splitlines()
    assert len(lines) <= LONGEST
    first = "\n".join(lines[:24])
    for word in ("JSON", "appended to", "Catalogs", "Platforms", "have not been run", "SECURITY.md"):
        assert word in first, word


def test_every_retired_word_is_looked_for() -> None:
    rows = GLOSSARY.text.partition("| retired | now |")[2].splitlines()[2:]
    assert {row.split(" | ")[0].removeprefix("| ") for row in rows if row.startswith("|")} == {*RETIRED}


@a_page
def test_a_page_uses_no_retired_word(page: Page) -> None:
    prose = page.prose.partition("## Words that we gave up")[0] if page == GLOSSARY else page.prose
    retired = re.findall(rf"\b(?:{'|'.join(RETIRED.values())})\b", " ".join(prose.split()), re.IGNORECASE)
    assert not retired, f"{page.name} uses words that {GLOSSARY.name} has retired: {', '.join(retired)}"


@a_page
def test_a_page_keeps_within_its_width(page: Page) -> None:
    """But for rows of tables and for what a program has printed."""
    prose = re.sub(r"^```.*?^```", "", page.text, flags=re.DOTALL | re.MULTILINE)
    long = [line for line in prose.splitlines() if len(line) > WIDEST and not line.startswith("|")]
    assert not long, f"{page.name} has a line of {len(long[0])} characters: {long[0]}"
