"""docs/reference is what the code says; and the settings' schema takes what the settings take."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from typer.testing import CliRunner

from lakehouse_ingest import errors
from lakehouse_ingest.cli.app import app
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import json_schema, layers, reference
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.tables import batch_log
from tests.docs import reference_pages


class TestPages:
    @pytest.mark.parametrize("name", reference_pages.PAGES)
    def test_are_current(self, name: str) -> None:
        path = reference_pages.FOLDER / name
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        assert written == reference_pages.PAGES[name](), f"docs/reference/{name} is not current: run `make docs`"

    def test_no_other_page_is_there(self) -> None:
        assert {path.name for path in reference_pages.FOLDER.iterdir()} == {*reference_pages.PAGES}

    def test_every_setting_is_on_its_page(self) -> None:
        page = reference_pages.settings_page()
        assert [
            each.name for each in reference.entries() if not each.model and f"| `{each.path[-1]}` |" not in page
        ] == []

    def test_every_variable_of_ours_is_explained(self) -> None:
        assert {*reference_pages.OTHER_VARIABLES} == layers.OTHER_VARIABLES


class TestClosedLists:
    def test_every_reason_is_explained(self) -> None:
        assert [*dead_letters.EXPLAINED] == [*Reason]
        for found, do in dead_letters.EXPLAINED.values():
            assert found.endswith(".")
            assert do.endswith(".")

    def test_every_column_of_ours_has_a_meaning(self) -> None:
        assert all(column.doc for column in batch_log.COLUMNS)
        assert [*dead_letters.MEANINGS] == [column.name for column in dead_letters.COLUMNS]
        assert {*batch_log.COUNTS} < {*batch_log.PARTITION}

    def test_every_exit_code_of_an_error_is_listed(self) -> None:
        codes = {each.exit_code for each in reference_pages.error_classes(errors.LakehouseError)}
        assert codes <= {*errors.EXIT_CODES}


schema = cache(json_schema.schema)

# -- the schema -------------------------------------------------------------------------------------------

KNOWN = {
    *("$schema", "$ref", "$defs", "title", "description", "default", "examples", "type", "format", "anyOf", "enum"),
    *("properties", "additionalProperties", "required", "items", "minItems", "uniqueItems", "minLength", "pattern"),
    *("minimum", "maximum", "exclusiveMinimum"),
}
TYPES: Mapping[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def wrong(value: Any, rule: Mapping[str, Any] | bool, where: str = "") -> Iterator[str]:  # noqa: C901, FBT001, PLR0912
    """What an editor would mark, by the keywords that the schema uses."""
    if rule is True:
        return
    if rule is False:
        yield where
        return
    assert {*rule} <= KNOWN, f"{where} has keywords that this test does not know: {sorted({*rule} - KNOWN)}"
    if "$ref" in rule:
        yield from wrong(value, schema()["$defs"][rule["$ref"].rpartition("/")[2]], where)
    if "anyOf" in rule and all([*wrong(value, each, where)] for each in rule["anyOf"]):
        yield where
    kind = rule.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield where
        return
    if value not in rule.get("enum", [value]):
        yield where
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        yield where
    if isinstance(value, int | float) and not rule.get("minimum", value) <= value <= rule.get("maximum", value):
        yield where
    if isinstance(value, int | float) and value <= rule.get("exclusiveMinimum", value - 1):
        yield where
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from wrong(each, rule.get("items", True), f"{where}.{number}")
    if isinstance(value, dict):
        for key in {*rule.get("required", ())} - {*value}:
            yield f"{where}.{key}"
        for key, each in value.items():
            yield from wrong(
                each, rule.get("properties", {}).get(key, rule.get("additionalProperties", True)), f"{where}.{key}"
            )


class TestSchema:
    def test_is_printed_by_the_command_line(self) -> None:
        printed = CliRunner().invoke(app, ["settings", "--schema"])
        assert json.loads(printed.output) == schema()

    def test_takes_the_example_with_every_setting(self) -> None:
        assert [*wrong(tomllib.loads(reference.example("toml")), schema())] == []

    @pytest.mark.parametrize("example", ["sensors.toml", "every-setting.toml"])
    def test_takes_the_shipped_examples(self, example: str) -> None:
        text = (reference_pages.ROOT / "deploy" / "examples" / example).read_text(encoding="utf-8")
        assert [*wrong(tomllib.loads(text), schema())] == []

    def test_knows_every_setting_with_its_meaning(self) -> None:
        for entry in reference.entries():
            place: Any = {}
            inside: Any = schema()
            for name in entry.path:
                place = inside["properties"][name]
                inner = place.get("items", place)
                inside = schema()["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
            assert entry.model or place["description"] == entry.description, entry.name

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ('catalog = { token = "x" }', None),
            ('catalog = { token = { file = "/run/secrets/token" } }', None),
            ('catalog = { token = { path = "/run/secrets/token" } }', ".catalog.token"),
            ('catalog = { timeout = "5s" }', None),
            ("catalog = { timeout = 5 }", None),
            ('catalog = { timeout = "5 parsecs" }', ".catalog.timeout"),
            ('catalog = { url = "x" }', ".catalog.url"),
            ('streams = [{ tables = [{ target_file_size = "64MiB" }] }]', None),
            ('streams = [{ tables = [{ target_file_size = "64 furlongs" }] }]', ".streams.0.tables.0.target_file_size"),
            ('streams = [{ tables = [{ codec = "rar" }] }]', ".streams.0.tables.0.codec"),
            ('streams = [{ tables = [{ columns = [{ name = "a" }] }] }]', ".streams.0.tables.0.columns.0.type"),
            ("source = { start = { orders = { 0 = 42 } } }", None),
            ("source = { start = { 0 = 42 } }", None),
            ("source = { partitions = { orders = [0, 1] } }", None),
            ("source = { partitions = { orders = [-1] } }", ".source.partitions.orders.0"),
            ('source = { security = { ca = { file = "ca.pem" } } }', None),
            ('telemetry = { headers = { a = { file = "x" } } }', None),
        ],
    )
    def test_marks_what_would_be_refused(self, text: str, place: str | None) -> None:
        assert {*wrong(tomllib.loads(text), schema())} == ({place} if place else set())
