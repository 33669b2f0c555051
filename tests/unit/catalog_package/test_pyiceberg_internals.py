"""One module knows what pyiceberg does not promise."""

import ast
from collections.abc import Iterator
from pathlib import Path

import catalog

MODULES = sorted(path for path in Path(catalog.__file__).parent.glob("*.py") if path.stem != "pyiceberg_internals")


def private_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pyiceberg"):
            yield from (alias.name for alias in node.names if alias.name.startswith("_"))


class TestOtherModules:
    def test_import_no_private_name_of_pyiceberg(self) -> None:
        assert len(MODULES) > 20
        assert {path.name: found for path in MODULES if (found := [*private_imports(path)])} == {}

    def test_contain_no_noqa_for_private_access(self) -> None:
        """`ruff` finds the access itself."""
        assert [path.name for path in MODULES if "SLF001" in path.read_text(encoding="utf-8")] == []
