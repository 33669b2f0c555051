"""The README says of each catalog of the conformance suite what it can't do, as its declaration does."""

from pathlib import Path

import pytest

from tests.services.catalogs import CANNOT

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CANNOT)
def test_the_readme_says_what_a_catalog_cannot_do(name: str) -> None:
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {name}: ")]
    assert row.endswith(f"| in `make test` | {', '.join(sorted(CANNOT[name]))} |")
