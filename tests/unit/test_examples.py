"""What pages show to users works: settings, Python and command lines, in the README, in docs and in deploy/examples."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import catalog
from lakehouse_ingest.cli.app import app
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.schema.layout import partitions_of
from lakehouse_ingest.schema.table_plans import plan_from_settings
from lakehouse_ingest.settings import Settings, load_settings, reference
from lakehouse_ingest.settings.named_code import ASKED_FOR
from tests.services.pages import ROOT, Page, pages
from tests.services.sqlite_catalog import sqlite_catalog

PAGES = pages()
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.toml"))
# So that a page may show the section that it is about, alone.
A_STREAM = '\n[[streams]]\ntopics = ["sensors"]\n'


def shown(language: str) -> list[Any]:
    """Every block of a language, named after its page and its place there."""
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(page.blocks(language), 1)
    ]


def planned(settings: Settings) -> None:
    """Beyond what the models check: every type and every partition is understood."""
    for table in settings.streams[0].tables:
        assert len(plan_from_settings("shown", table)) == len(table.columns)
        assert [str(each) for each in partitions_of(table)] == list(table.partition_by)


class TestExample:
    @pytest.mark.parametrize("block", shown("toml"))
    def test_of_settings_on_a_page_is_accepted(
        self, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "shown.toml"
        file.write_text(block if "streams" in tomllib.loads(block) else block + A_STREAM)
        for name in re.findall(r'file = "([\w-]+)"', block):  # of a secret, where the command is typed
            (tmp_path / name).write_text("a secret\n")
        planned(load_settings(file, environment={}))

    @pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
    def test_in_the_examples_folder_is_accepted(self, file: Path) -> None:
        planned(load_settings(file, environment={}))

    @pytest.mark.parametrize("program", shown("python"))
    def test_of_python_on_a_page_imports_what_exists(self, program: str) -> None:
        imports: list[ast.stmt] = [
            each for each in ast.parse(program).body if isinstance(each, ast.Import | ast.ImportFrom)
        ]
        assert imports
        exec(compile(ast.Module(imports, []), "a page", "exec"), {})

    def test_of_the_catalog_package_prints_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As it stands, and prints what it says it does; only that the catalog is another one, and empty."""
        (program,) = (each for page in PAGES for each in page.blocks("python") if "from catalog import" in each)
        there = sqlite_catalog(tmp_path)
        monkeypatch.setattr(catalog, "connect", lambda _: catalog.CatalogClient(there))
        made: dict[str, catalog.TableState] = {}
        exec(program, made)
        assert capsys.readouterr().out == "".join(f"{line}\n" for line in re.findall(r"^# (.*)", program, re.MULTILINE))
        assert [str(each.type) for each in made["state"].columns] == ["long", "struct<lat: double>", "string"]
        there.close()


def refusal(words: list[str]) -> str:
    """What is wrong with a command line of ours, as far as its verb and its options go."""
    verb, name = typer.main.get_command(app), "lakehouse-ingest"
    while (verbs := getattr(verb, "commands", None)) and words and not words[0].startswith("-"):
        if words[0] not in verbs:
            return f"{name} has no verb {words[0]}"
        verb, name, words = verbs[words[0]], f"{name} {words[0]}", words[1:]
    known = {option for each in verb.params for option in each.opts} | {"--help"}
    given = [each.partition("=")[0] for each in words if re.match("--?[a-z]", each)]
    unknown = [each for each in given if each not in known]
    return f"{name} has no option {', '.join(unknown)}" if unknown else ""


def of_others(name: str) -> bool:
    first, _, rest = name.partition(".")
    return (
        (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
        or (first == "catalog" and hasattr(catalog, rest))
        or (first in {"source", "sink"} and rest in {"connect", "read", "close", "flush"})
        or (first == "spark" and name not in {"spark.master", "spark.memory", "spark.options"})
        or name.endswith((".json", ".toml", ".py", ".md", ".db", ".exporters"))
    )


class TestPage:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_names_only_command_lines_that_exist(self, page: Page) -> None:
        refused = [found for words in page.commands("lakehouse-ingest") if (found := refusal(words))]
        assert not refused, f"{page.name}: {'; '.join(refused)}"

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_names_only_make_targets_that_exist(self, page: Page) -> None:
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        named = {word for words in page.commands("make") for word in words if re.fullmatch(r"[a-z][\w-]*", word)}
        assert named <= targets, f"{page.name}: make has no target {', '.join(sorted(named - targets))}"

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_names_only_settings_that_exist(self, page: Page) -> None:
        """By their whole name. What else looks like one is of `catalog`, of a span, of Spark, or a file's name."""
        known = {entry.name for entry in reference.entries()}
        sections = {name.partition(".")[0] for name in known if "." in name}
        named = {name for name in page.in_line if re.fullmatch(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+", name)}
        settings = {name for name in named if name.partition(".")[0] in sections and not of_others(name)}
        assert settings <= known, f"{page.name}: there is no setting {', '.join(sorted(settings - known))}"

    def test_with_an_unknown_command_line_is_found(self, tmp_path: Path) -> None:
        page = Page(tmp_path / "page.md")
        page.path.write_text(
            "`lakehouse-ingest validate`\n```console\n$ X=1 lakehouse-ingest run --topic a && make it\n```\n"
        )
        assert [refusal(words) for words in page.commands("lakehouse-ingest")] == [
            "lakehouse-ingest run has no option --topic",
            "lakehouse-ingest has no verb validate",
        ]
        assert list(page.commands("make")) == [["it"]]

    def test_about_security_uses_the_names_of_the_program(self) -> None:
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
