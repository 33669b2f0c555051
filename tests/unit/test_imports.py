"""What import-linter's layers in `pyproject.toml` can't say: which packages a package must not need, and its doors."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


PACKAGES = ("lakehouse_ingest", "catalog", "telemetry")


@cache
def modules(package: str) -> list[tuple[str, frozenset[str]]]:
    """Every module of a package by its dotted name, with what it imports."""
    paths = sorted((ROOT / package).rglob("*.py"))
    trees = [(name_of(path), ast.parse(path.read_text(encoding="utf-8"), str(path))) for path in paths]
    return [(name, frozenset(imports(tree))) for name, tree in trees]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.Module) -> Iterator[str]:
    """Whatever is imported anywhere in a module, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, "imports are written whole"
                yield from (f"{module}.{alias.name}" for alias in names)


def within(names: Iterable[str], package: str) -> set[str]:
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of ours in which nothing is wrong, with import-linter's cache of it."""
    folder = tmp_path_factory.mktemp("sound")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    before = linted(folder)
    assert before.returncode == 0, before.stdout
    return folder


class TestLayers:
    """`make check` runs import-linter; here it is seen to find what it is there for."""

    @pytest.mark.parametrize(
        ("room", "planted", "said"),
        [
            ("stages/column_checks.py", "import lakehouse_ingest.pipeline.stream", "A room imports the rooms below it"),
            ("stages/column_checks.py", "import lakehouse_ingest.ledger.marks", "Stages are silent"),
            ("newcomer.py", "", "lakehouse_ingest.newcomer"),
        ],
    )
    def test_find_a_planted_wrong_import(self, sound: Path, tmp_path: Path, room: str, planted: str, said: str) -> None:
        folder = shutil.copytree(sound, tmp_path / "planted")
        with (folder / "lakehouse_ingest" / room).open("a", encoding="utf-8") as module:
            module.write(f"\n{planted}\n")
        after = linted(folder)
        assert after.returncode == 1
        assert said in after.stdout


class TestPackage:
    @pytest.mark.parametrize(
        ("package", "strangers"),
        [
            ("catalog", ("lakehouse_ingest", "telemetry", "pyspark", "py4j")),
            ("telemetry", ("lakehouse_ingest", "catalog", "pyspark", "py4j", "pyiceberg")),
        ],
    )
    def test_that_is_usable_alone_imports_none_of_the_others(self, package: str, strangers: tuple[str, ...]) -> None:
        for name, imported in modules(package):
            for stranger in strangers:
                assert not within(imported, stranger), f"{name} imports {stranger}"

    @pytest.mark.parametrize(
        ("package", "doors"),
        [
            ("catalog", {"tables", "schema", "stages", "pipeline"}),  # all but tables take what `TAKEN` lists
            ("telemetry", {"observe"}),
        ],
    )
    def test_has_its_doors(self, package: str, doors: set[str]) -> None:
        importers = {name for name, imported in modules("lakehouse_ingest") if within(imported, package)}
        assert {name.split(".")[1] for name in importers} == doors

    @pytest.mark.parametrize("package", ["catalog", "telemetry"])
    def test_is_used_by_what_it_shows_and_by_nothing_else(self, package: str) -> None:
        shown = {
            name
            for node in ast.walk(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")))
            if isinstance(node, ast.Assign)
            and any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets)
            for name in ast.literal_eval(node.value)
        }
        assert shown
        for name, imported in modules("lakehouse_ingest"):
            for each in within(imported, package) - {package}:
                assert each.split(".")[1] in shown, f"{name} imports {each}"

    @pytest.mark.parametrize("package", ["catalog", "telemetry"])
    def test_is_importable_without_spark_and_without_the_others(self, package: str) -> None:
        others = [name for name in (*PACKAGES, "pyspark", "py4j") if name != package]
        program = (
            f"import sys; sys.modules.update(dict.fromkeys({others!r})); "
            f"import importlib, pkgutil, {package}; "
            f"found = [each.name for each in pkgutil.walk_packages({package}.__path__, '{package}.')]; "
            "[importlib.import_module(each) for each in found]; print(len(found))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) >= 5


# Only tables let the catalog act. The other rooms take values, functions of values, and (the tasks) data files, which
# belong to no table before tables commits them.
TAKEN = {
    "schema": {
        *("Add", "Column", "Contract", "Evolution", "Partition", "Relax", "Rule", "Sort", "TableSpec", "TableState"),
        *("Widen", "bare", "columns_of", "parse_type", "same_partitions"),
    },
    "stages": {"Contract", "FOLLOW", "Rule"},
    "pipeline": {"DataFileReceipt", "FileCounter", "FileLayout", "FileNames", "FileWriter", "TableFiles"},
}


class TestRoom:
    def test_says_in_one_sentence_what_it_is(self) -> None:
        for room in (ROOT / "lakehouse_ingest").iterdir():
            if (room / "__init__.py").exists():
                assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))), room

    def test_the_root_holds_seven_modules_at_most(self) -> None:
        flat = {path.stem for path in (ROOT / "lakehouse_ingest").glob("*.py")} - {"__init__", "__main__"}
        assert len(flat) <= 7

    @pytest.mark.parametrize("room", TAKEN)
    def test_takes_nothing_from_the_catalog_that_acts(self, room: str) -> None:
        taken = {
            each.removeprefix("catalog.")
            for name, imported in modules("lakehouse_ingest")
            if name.startswith(f"lakehouse_ingest.{room}.")
            for each in within(imported, "catalog")
        }
        assert taken == TAKEN[room]


class TestCommandLine:
    def test_loads_no_spark_for_help(self) -> None:
        program = "import sys, lakehouse_ingest.cli.app; sys.exit('pyspark' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", program], timeout=60, cwd=ROOT, check=False).returncode == 0


class TestTask:
    @pytest.mark.parametrize("unused", ["lakehouse_ingest.environment.embedded.catalog", "rich", "typer", "structlog"])
    def test_loads_nothing_of_servers_and_screens(self, unused: str) -> None:
        """Each start waits for it: half a second of the processor, and 14 MB."""
        program = f"import sys, lakehouse_ingest.pipeline.task; sys.exit({unused!r} in sys.modules)"
        assert subprocess.run([sys.executable, "-c", program], timeout=60, cwd=ROOT, check=False).returncode == 0


class TestName:
    def test_of_a_top_level_module_is_none_of_the_standard_library(self) -> None:
        """Within a package it does no harm; on the path itself it would shadow, or be shadowed."""
        tops = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
        assert set(PACKAGES) <= tops
        assert not tops & sys.stdlib_module_names

    def test_of_a_file_of_ours_is_none_of_the_standard_library(self) -> None:
        for package in PACKAGES:
            for name, _ in modules(package):
                assert name.rpartition(".")[2] not in sys.stdlib_module_names, name

    def test_of_a_folder_of_tests_is_that_of_a_package_and_none_of_ours(self) -> None:
        folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
        for folder in folders:
            assert (folder / "__init__.py").exists(), folder
            assert folder.name not in PACKAGES, folder


# Runs pytest where there is no pyspark and no py4j, and so no way to Java. What pickles for Spark is plain Python in a
# folder of pyspark, which can be imported alone.
WITHOUT_SPARK = """
import importlib.util, sys
from pathlib import Path
from types import ModuleType

(pyspark,) = importlib.util.find_spec("pyspark").submodule_search_locations
stand_in = sys.modules["pyspark"] = ModuleType("pyspark")
stand_in.__path__ = []
name, folder = "pyspark.cloudpickle", Path(pyspark, "cloudpickle")
spec = importlib.util.spec_from_file_location(
    name, folder / "__init__.py", submodule_search_locations=[str(folder)]
)
stand_in.cloudpickle = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in.cloudpickle)
sys.modules["py4j"] = None

import pytest
sys.exit(pytest.main(["--noconftest", "--setup-plan", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def planned_without_spark(folder: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_SPARK, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


class TestTestsOfStages:
    """They are not run here, but imported, and each of their fixtures is looked up."""

    def test_need_no_spark_and_no_java(self) -> None:
        found = planned_without_spark("tests/stages")
        assert found.returncode == 0, found.stdout[-2000:]
        assert "test_routing.py" in found.stdout

    @pytest.mark.parametrize(
        "planted",
        [
            "from pyspark.sql import SparkSession\ndef test(): pass",
            "import lakehouse_ingest.environment.spark_session\ndef test(): pass",
            "def test(spark): pass",
        ],
    )
    def test_would_be_seen_to_need_it(self, planted: str, tmp_path: Path) -> None:
        (tmp_path / "test_planted.py").write_text(planted)
        assert planned_without_spark(tmp_path).returncode != 0
