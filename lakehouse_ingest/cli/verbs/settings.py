"""`lakehouse-ingest settings`: all settings, or those in force and where each value came from."""

import json
from typing import Literal

from rich.padding import Padding
from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.settings import Loaded, json_schema, reference

NOTES = """
File: lakehouse-ingest settings --example toml (or yaml) prints one. Streams and tables are lists.
Environment: LAKEHOUSE_INGEST_CATALOG__URI is catalog.uri. Lists and tables are written as YAML.
Secrets: a value may be read from a file, as token = { file = "/run/secrets/token" } or as …__TOKEN__FILE.
Precedence: the command line before the environment, the environment before the file."""


def example(form: Literal["toml", "yaml"]) -> None:
    say(reference.example(form), nl=False)


def schema() -> None:
    say(json.dumps(json_schema.schema(), indent=2, ensure_ascii=False))


def show_reference(*, as_json: bool) -> None:
    """All settings with their kind, default and meaning."""
    found = [entry for entry in reference.entries() if not entry.model]
    if as_json:
        say(
            json.dumps(
                {
                    entry.name: {"kind": entry.kind, "default": entry.default, "meaning": entry.description}
                    for entry in found
                },
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    console = _console()
    for entry in found:
        usual = "" if entry.default is None else f"  default {_text(entry.default)}"
        console.print(Text.assemble((entry.name, "bold"), f"  {entry.kind}", (usual, "dim")), soft_wrap=True)
        console.print(Padding(Text(entry.description), (0, 0, 0, 4)))
    console.print(NOTES, soft_wrap=not console.is_terminal)


def show_in_force(loaded: Loaded, *, as_json: bool) -> None:
    found = {
        ".".join(map(str, where)): (value, loaded.origin_of(where) or "default")
        for where, value in reference.in_force(loaded.settings)
    }
    if as_json:
        shown = {name: {"value": value, "from": origin} for name, (value, origin) in found.items()}
        say(json.dumps(shown, indent=2, default=str))
        return
    console = _console()
    wide = max(map(len, found))
    for name, (value, origin) in found.items():
        line = f"{name:<{wide}}  {_text(value)}  ({origin})"
        console.print(line, soft_wrap=True, style="dim" if origin == "default" else None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _console() -> Terminal:
    return Terminal()
