"""Who may import whom: the street runs one way, and `catalog` and `telemetry` live without the rest."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lakehouse_ingest", "catalog", "telemetry")

# Words that every stage may use.
SHARED = {"errors", "fail_points", "ledger_keys", "records", "settings"}
# Every module has one place: on the street, in what it stands on, or among those that drive it. The street, stage by
# stage, each with the siblings it may import: only words that lie before it.
STREET: dict[str, set[str]] = {
    "sources": {"ledger", "plugins"},  # the identity of a topic is a word of the ledger
    "columns": {"names"},
    "formats": {"columns", "names", "plugins", "shaping"},  # from shaping the one spelling of a fault
    "routing": {"columns", "shaping"},  # likewise
    "rescuing": {"columns", "shaping"},
    "transforms": {"accounting", "shaping"},  # the one spelling of a fault
    "shaping": {"columns"},
    "dead_letters": {"columns", "shaping"},
    "writers": {"session"},  # the name of the catalog within Spark
    "accounting": set(),
    "ledger": set(),
    "held": {"accounting", "session"},
}
# What they stand on must not know them either.
GROUND: dict[str, set[str]] = {
    "printable": set(),
    "terminal": {"printable"},
    "errors": {"printable"},
    "fail_points": set(),
    "ledger_keys": set(),
    "records": set(),
    "settings": set(),
    "spark_errors": set(),
    "class_data": {"jars"},
    "warming": {"class_data", "jars", "session"},
    "session": {"class_data", "names", "network", "spark_errors"},
    "java": set(),
    "network": set(),
    "signals": set(),
    "pacing": set(),
    "retention": {"ledger"},
    "tables": {"ledger", "retention"},
    "plugins": set(),
    "storage": {"jars", "network", "plugins"},
    "catalog_access": {"embedded", "network", "storage", "tables"},
    "questions": {"ledger", "tables"},
    "starting": {"ledger", "questions", "tables"},
    "origins": {"offset_log", "sources"},
    "shares": {"ledger", "questions", "tables"},
    "verifying": {"ledger", "sources", "tables"},
    "health": set(),
    "blurring": set(),
    "history": {"blurring"},
    "conventions": set(),
    "observing": {"conventions", "health", "history", "printable"},
    "looking": {"health", "observing", "open_transactions", "sources"},
    "names": set(),
    "contracts": {"columns", "shaping", "tables"},
    "widening": {"columns", "contracts", "formats", "shaping", "tables"},
    "planning": {"columns", "contracts", "formats", "names", "shaping", "tables", "writers"},
    "table_keeper": {"columns", "contracts", "formats", "planning", "shaping", "tables", "widening", "writers"},
    "stream_tables": {"contracts", "formats", "names", "planning", "routing", "table_keeper", "tables"},
    "maintenance": {"ledger", "retention", "session"},
    "jars": {"java", "network", "terminal"},
    "embedded": {"java", "jars", "network", "storage"},
    "callback": {"session"},
    "demo": {"terminal"},
    "offset_log": set(),
    "batch_size": {"ledger", "tables"},
    "promoting": {"columns"},
    "scratch": set(),
    "replicas": {"embedded", "ledger", "tables"},
    "open_transactions": set(),
    "standing": {"ledger", "open_transactions", "tables"},
}
# Each may import all of these, and of one another those that stand before it.
DRIVERS = (
    *("batch_record", "decided", "sorting", "batch", "opening", "stream", "pipeline", "rehearsing"),
    *("testing", "commands", "api", "cli"),
)


@cache
def modules(package: str) -> list[tuple[str, ast.Module]]:
    """Every module of a package by its dotted name, as it is written."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return [(name_of(path), ast.parse(path.read_text(encoding="utf-8"), str(path))) for path in paths]


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


def within(names: Iterator[str], package: str) -> set[str]:
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def siblings(stage: str) -> dict[str, set[str]]:
    """For each module of a stage the other parts of lakehouse_ingest that it imports."""
    own = f"lakehouse_ingest.{stage}"
    return {
        name: {imported.split(".")[1] for imported in within(imports(tree), "lakehouse_ingest") if imported.count(".")}
        - {stage}
        for name, tree in modules("lakehouse_ingest")
        if name == own or name.startswith(f"{own}.")
    }


def test_every_module_has_one_place() -> None:
    """Whoever adds one says what it may import, and is held to that."""
    there = {name.split(".")[1] for name, _ in modules("lakehouse_ingest") if "." in name}
    assert Counter(there) == Counter([*STREET, *GROUND, *DRIVERS])


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_imports_no_one_who_drives_it(driver: str) -> None:
    for name, found in siblings(driver).items():
        behind = found & {*DRIVERS[DRIVERS.index(driver) :]}
        assert not behind, f"{name} imports {sorted(behind)}"


@pytest.mark.parametrize("stage", STREET)
def test_a_stage_imports_the_shared_words_and_what_lies_before_it(stage: str) -> None:
    for name, found in siblings(stage).items():
        assert found <= SHARED | STREET[stage], f"{name} imports {sorted(found - SHARED - STREET[stage])}"


@pytest.mark.parametrize("part", GROUND)
def test_what_stages_stand_on_imports_nothing_of_theirs(part: str) -> None:
    found = siblings(part)
    assert found, f"{part} is gone: take it from the list"
    for name, imported in found.items():
        assert imported <= SHARED | GROUND[part], f"{name} imports {sorted(imported - SHARED - GROUND[part])}"


def test_the_street_has_no_way_back() -> None:
    allowed = {**STREET, **GROUND}

    def reached(stage: str, way: tuple[str, ...]) -> None:
        assert stage not in way, f"a circle: {' -> '.join((*way, stage))}"
        for following in allowed.get(stage, set()):
            reached(following, (*way, stage))

    for stage in allowed:
        reached(stage, ())


def test_no_stage_knows_the_catalog_the_telemetry_or_the_pipeline() -> None:
    """Stages are silent, and effects are last."""
    upstream = {
        "pipeline",
        "stream",
        "opening",
        "batch",
        "sorting",
        "batch_record",
        "stream_tables",
        "table_keeper",
        "observing",
        "contracts",
        "widening",
    }
    upstream |= {"tables", "cli", "commands"}
    for stage in STREET:
        for name, found in siblings(stage).items():
            assert not found & upstream, name


@pytest.mark.parametrize(
    ("package", "strangers"),
    [
        ("catalog", ("lakehouse_ingest", "telemetry", "pyspark", "py4j")),
        ("telemetry", ("lakehouse_ingest", "catalog", "pyspark", "py4j", "pyiceberg")),
    ],
)
def test_a_package_that_is_usable_alone_imports_none_of_the_others(package: str, strangers: tuple[str, ...]) -> None:
    for name, tree in modules(package):
        for stranger in strangers:
            assert not within(imports(tree), stranger), f"{name} imports {stranger}"


@pytest.mark.parametrize(
    ("package", "door"), [("catalog", "lakehouse_ingest.tables"), ("telemetry", "lakehouse_ingest.observing")]
)
def test_a_package_has_one_door(package: str, door: str) -> None:
    importers = {name for name, tree in modules("lakehouse_ingest") if within(imports(tree), package)}
    assert importers
    assert all(name == door or name.startswith(f"{door}.") for name in importers)


@pytest.mark.parametrize("package", ["catalog", "telemetry"])
def test_only_what_a_package_shows_crosses_its_door(package: str) -> None:
    shown = {
        name
        for node in ast.walk(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets)
        for name in ast.literal_eval(node.value)
    }
    assert shown
    for name, tree in modules("lakehouse_ingest"):
        for imported in within(imports(tree), package) - {package}:
            assert imported.split(".")[1] in shown, f"{name} imports {imported}"


@pytest.mark.parametrize("package", ["catalog", "telemetry"])
def test_a_package_is_importable_without_spark_and_without_the_others(package: str) -> None:
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


def test_asking_the_command_line_for_help_loads_no_spark() -> None:
    program = "import sys, lakehouse_ingest.cli; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, cwd=ROOT, check=False).returncode == 0


def test_no_top_level_module_is_named_like_one_of_the_standard_librarys() -> None:
    """Within a package it does no harm; on the path itself it would shadow, or be shadowed."""
    tops = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(PACKAGES) <= tops
    assert not tops & sys.stdlib_module_names


def test_no_file_of_ours_is_named_like_a_module_of_the_standard_library() -> None:
    for package in PACKAGES:
        for name, _ in modules(package):
            assert name.rpartition(".")[2] not in sys.stdlib_module_names, name


def test_every_tests_folder_is_a_package_and_none_is_named_after_one_of_ours() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    for folder in folders:
        assert (folder / "__init__.py").exists(), folder
        assert folder.name not in PACKAGES, folder
