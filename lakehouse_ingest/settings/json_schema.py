"""The settings as JSON Schema: editors complete a settings file by it, and underline what would be refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from lakehouse_ingest.settings import reference
from lakehouse_ingest.settings.models import ColumnSettings, Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL = {"type": "null"}


def schema() -> dict[str, Any]:
    """What may stand in a settings file; the rules between settings are checked when it is loaded."""
    found = Settings.model_json_schema()
    models: set[type[BaseModel]] = {ColumnSettings, Settings, *_sections()}
    for model in models:
        part = found if model is Settings else found["$defs"][model.__name__]
        fields = {entry.path[-1]: entry for entry in reference.fields_of(model)}
        part["properties"] = {name: _as_written(field, fields.get(name)) for name, field in part["properties"].items()}
    # Flags and variables may give what a file leaves out.
    del found["required"]
    return {
        "$schema": DIALECT,
        "title": "Settings of lakehouse-ingest",
        **{key: found[key] for key in ("type", "additionalProperties", "properties", "$defs")},
    }


def _sections() -> Iterator[type[BaseModel]]:
    return (entry.model for entry in reference.entries() if entry.model)


def _as_written(field: Mapping[str, Any], entry: reference.Entry | None) -> dict[str, Any]:
    """Without what only Python knows: titles, nulls, and defaults in another spelling than a person's."""
    found = {key: value for key, value in field.items() if key not in ("title", "default", "examples")}
    choices = [each for each in found.pop("anyOf", ()) if each != NULL]
    found |= {"anyOf": choices} if len(choices) > 1 else next(iter(choices), {})
    if entry is None or entry.model:
        return found
    if entry.default is not None:
        found["default"] = entry.default
    elif entry.sample is not None:
        found["examples"] = [entry.sample]
    return found
