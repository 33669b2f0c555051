"""A page says of each catalog of the conformance suite what it can't do, as its declaration does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.catalogs import OURS, VARIABLE, Kind
from tests.services.pages import ROOT, Page, pages

LIMITS = Page(ROOT / "docs" / "concepts" / "limits.md")


class TestPageOfLimits:
    @pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
    def test_says_what_a_catalog_cannot_do(self, kind: type[Kind]) -> None:
        (row,) = [line for line in LIMITS.text.splitlines() if line.startswith(f"| {kind.name}: ")]
        assert row.endswith(f"| in `make test` | {', '.join(sorted(kind.cannot))} |")


class TestCommandShown:
    def test_runs_all_of_the_suite_on_the_given_catalog_and_on_no_other(self) -> None:
        """None of the fixtures that start something of ours are asked for."""
        text = "\n".join(page.text for page in pages())
        (shown,) = set(
            re.findall(r"\$ LAKEHOUSE_TEST_CATALOG_URI=https.*?-m pytest (.*?)\n(?:\$|```)", text, re.DOTALL)
        )
        environment = {**os.environ, "PYTEST_ADDOPTS": "", f"{VARIABLE}URI": "http://localhost:1"}
        command = [sys.executable, "-m", "pytest", *shown.split(), "--collect-only", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = [line for line in done.stdout.splitlines() if "::" in line]
        assert all(re.search(r"\[(.*-)?given\b", line) for line in found)
        suites = {
            path.name
            for path in (ROOT / "tests" / "conformance").glob("test_*.py")
            if re.search("lake: CatalogClient|GIVEN", path.read_text())
        }
        assert {Path(line.partition("::")[0]).name for line in found} == suites
