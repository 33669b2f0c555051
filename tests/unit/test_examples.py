"""What is shown to users works: settings files in the README and in deploy/examples, and the README's Python."""

import ast
import re
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import catalog
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.schema.declared import plan_from_settings
from lakehouse_ingest.schema.layout import partitions_of
from lakehouse_ingest.settings import Settings, load_settings, reference
from lakehouse_ingest.settings.named_code import ASKED_FOR

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.toml"))


def planned(settings: Settings) -> None:
    """Beyond what the models check: every type and every partition is understood."""
    for table in settings.streams[0].tables:
        assert len(plan_from_settings("shown", table)) == len(table.columns)
        assert [str(each) for each in partitions_of(table)] == list(table.partition_by)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_readmes_settings_are_accepted(block: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.toml"
    file.write_text(block)
    planned(load_settings(file, environment={}))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_are_accepted(file: Path) -> None:
    planned(load_settings(file, environment={}))


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_the_readmes_python_imports_is_there(program: str) -> None:
    imports: list[ast.stmt] = [
        each for each in ast.parse(program).body if isinstance(each, ast.Import | ast.ImportFrom)
    ]
    assert imports
    exec(compile(ast.Module(imports, []), "README.md", "exec"), {})


def test_the_readmes_example_of_the_catalog_package_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands, and prints what it says it does; only that the catalog is another one, and empty."""
    (program,) = (each for each in PROGRAMS if "from catalog import" in each)
    there = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    monkeypatch.setattr(catalog, "connect", lambda _: catalog.Lake(there))
    shown: dict[str, catalog.TableState] = {}
    exec(program, shown)
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in re.findall(r"^# (.*)", program, re.MULTILINE))
    assert [str(each.type) for each in shown["state"].columns] == ["long", "struct<lat: double>", "string"]
    there.close()


def test_the_readme_names_tests_that_exist() -> None:
    for path, name in re.findall(r"`(tests[\w/]*(?:\.py)?)(?:::(\w+))?`", README + SECURITY):
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_pages_at_the_top_lead_to_files_that_exist() -> None:
    assert "(SECURITY.md)" in README
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", README + SECURITY):
        assert (ROOT / target).exists(), target


def test_what_is_said_of_security_is_said_in_the_words_of_the_program() -> None:
    """Settings, flags and variables that it names exist; and it says how a vulnerability is reported."""
    known = {entry.name for entry in reference.entries()}
    for name in re.findall(r"`((?:catalog|spark|source)\.[a-z_]+)`", SECURITY):
        assert name in known, name
    for name in ("max_columns", "max_new", "max_tables", "max_records", "on_error"):
        assert any(each.endswith(f".{name}") for each in known), name
    assert ASKED_FOR.count("--allow-code") == SECURITY.count("refused without `--allow-code`") == 1
    assert f"{marks.LARGEST >> 20} MiB" in SECURITY
    assert "## Reporting a vulnerability" in SECURITY
    assert "@" not in SECURITY, "no address that nobody reads"
