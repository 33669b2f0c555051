"""The index has every page, pages name tests that exist, and the README stays short and candid."""

import re

import pytest

from tests.services.pages import ROOT, TOP, Page, pages

PAGES = pages()
README, INDEX = Page(ROOT / "README.md"), Page(ROOT / "docs" / "index.md")
PROOFS = Page(ROOT / "docs" / "development" / "proofs.md")
LONGEST = 200  # lines of the README


class TestPage:
    def test_is_in_the_index(self) -> None:
        listed = {(INDEX.path.parent / link.partition("#")[0]).resolve() for link in INDEX.links}
        forgotten = [page.name for page in PAGES if page.path not in listed | {INDEX.path} and page.name not in TOP]
        assert not forgotten, f"{INDEX.name} lacks {', '.join(forgotten)}"

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_names_only_tests_that_exist(self, page: Page) -> None:
        for path, names in page.tests:
            assert (ROOT / path).exists(), path
            for name in names:
                text = (ROOT / path).read_text(encoding="utf-8")
                assert re.search(rf"\b(?:def|class) {name}\b", text), f"{path}::{name}"


class TestPromise:
    def test_names_its_test(self) -> None:
        tables = re.findall(r"^\| promise \|.*\n\|[-| ]+\n((?:\|.*\n)+)", PROOFS.text, re.MULTILINE)
        rows = [row for table in tables for row in table.splitlines()]
        assert len(rows) > 60
        unproven = [row for row in rows if not re.search(r"\btests/\w+", row)]
        assert not unproven, f"{PROOFS.name} names no test: {unproven[0]}"
        promised = README.text.partition("## What is promised")[2].partition("\n## ")[0]
        items = re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n)", promised, re.DOTALL | re.MULTILINE)
        assert len(items) == 10
        unproven = [item for item in items if not re.search(r"\]\(tests/\w+/test_\w+\.py\)", item)]
        assert not unproven, f"{README.name} names no test: {unproven[0]}"


class TestReadme:
    def test_is_short_and_begins_with_the_limits(self) -> None:
        lines = README.text.splitlines()
        assert len(lines) <= LONGEST
        first = "\n".join(lines[:24])
        for word in ("JSON", "appended to", "Catalogs", "Platforms", "have not been run", "SECURITY.md"):
            assert word in first, word
