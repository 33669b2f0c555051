"""Writes docs/reference from the code: `make docs`. A test fails when a page is not what this would write.

It lies under tests/, not in docs/: it imports the command line and every room, is type-checked with the tests, and is
not installed.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

import telemetry
from lakehouse_ingest import errors
from lakehouse_ingest.cli.app import app
from lakehouse_ingest.ledger import keys
from lakehouse_ingest.records import SOURCE, Reason
from lakehouse_ingest.schema.columns import SOURCE_TYPE
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import json_schema, layers, reference
from lakehouse_ingest.settings.models import ColumnSettings, Settings, TableSettings
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.tables import batch_log

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Generated from the code by `make docs`. Do not edit. -->"


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    return {name: write() for name, write in PAGES.items()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def page(title: str, *parts: str) -> str:
    return "\n\n".join([NOTE, f"# {title}", *(part.strip("\n") for part in parts)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    return f"`{text}`"


# -- settings ---------------------------------------------------------------------------------------------

SETTINGS = """\
A pipeline reads its settings from a TOML or YAML file, from environment variables and from the command line. The
command line takes precedence over the environment, and the environment over the file. Unknown settings are refused.

```console
$ lakehouse-ingest settings                                # this list, in a terminal
$ lakehouse-ingest settings --example toml                 # a file with every setting, its default and its meaning
$ lakehouse-ingest settings --config pipeline.toml         # the values in force, and where each of them came from
```

[`deploy/examples/every-setting.toml`](../../deploy/examples/every-setting.toml) is that example file.
"""
WRITTEN = """\
## How values are written

- A **duration** is `250ms`, `5s`, `10m`, `1h`, or a number of seconds.
- A **size** is `128MiB`, `1GiB`, `64KiB`, or a number of bytes.
- A **secret** is the text itself, or `{ file = "/run/secrets/token" }`. The end of the last line of such a file is left
  out. Secrets are shown neither in the log nor in any message.
- **PEM or file** is the path of a PEM file, the PEM text itself, or `{ file = "…" }`.
- **Offsets** are `{ topic = { 0 = 42 } }`, or `{ 0 = 42 }` for every topic.
- `streams` and `streams.tables` are lists: `[[streams]]` and `[[streams.tables]]` in TOML.
"""
ENVIRONMENT = """\
## Environment

A variable is named `LAKEHOUSE_INGEST_`, then the sections and the setting in capitals, with two underscores between:
`LAKEHOUSE_INGEST_CATALOG__URI` is `catalog.uri`. Lists and tables are written as YAML, such as
`LAKEHOUSE_INGEST_STREAMS=[{topics: [orders]}]`. A secret may come from a file:
`LAKEHOUSE_INGEST_CATALOG__TOKEN__FILE=/run/secrets/token`.
"""
EDITORS = """\
## Editors

[`settings.schema.json`](settings.schema.json) is the JSON Schema of a settings file. `lakehouse-ingest settings
--schema` prints the schema of the version that is installed. An editor with it completes the names of settings, shows
their meaning, and marks what would be refused.

- **TOML**, by [taplo](https://taplo.tamasfe.dev) (Even Better TOML in VS Code): put
  `#:schema ./settings.schema.json` into the first line of the settings file.
- **YAML**, by the [YAML language server](https://github.com/redhat-developer/yaml-language-server): put
  `# yaml-language-server: $schema=./settings.schema.json` into the first line.

Both take a path relative to the settings file, or a URL. Rules between settings, such as `password` with `username`,
are checked when the file is loaded.
"""
OTHER_VARIABLES = {
    "LAKEHOUSE_INGEST_CONFIG": "The settings file, as with `--config`.",
    "LAKEHOUSE_INGEST_JARS": "A folder that holds the jars, as with `--jars`.",
    "LAKEHOUSE_INGEST_JARS_MIRROR": "Address of a Maven repository to download jars from.",
    "LAKEHOUSE_INGEST_ALLOW_CODE": "`1`: the settings may name code, as with `--allow-code`.",
}


REQUIRED = {("name",): "the only topic", ("streams", "topics"): "this, or `topic_pattern`"}


def settings_page() -> str:
    flags = table(
        ("flag of `run`", "setting"),
        (
            (code(flag), code(".".join(part for part in where if isinstance(part, str))))
            for flag, where in layers.FLAGS.items()
        ),
    )
    variables = table(
        ("variable", "meaning"), ((code(name), OTHER_VARIABLES[name]) for name in sorted(layers.OTHER_VARIABLES))
    )
    foreign = table(
        ("variable", "setting to use instead"),
        ((code(name), code(setting)) for name, setting in sorted(layers.FOREIGN.items())),
    )
    return page(
        "Settings",
        SETTINGS,
        WRITTEN,
        *sections(),
        ENVIRONMENT,
        f"Further variables:\n\n{variables}",
        "Variables that other programs read are not read. If one of these is set, `run` logs a warning with the setting"
        f" to use instead:\n\n{foreign}",
        "## Flags\n\nThe command line sets what one pipeline with one stream needs. See"
        f" [command-line](command-line.md).\n\n{flags}",
        EDITORS,
    )


def sections() -> Iterator[str]:
    yield section("", "Top level", inspect.getdoc(Settings) or "", reference.fields_of(Settings))
    for entry in reference.entries():
        if entry.model:
            title = f"`[[{entry.name}]]`" if entry.several else f"`[{entry.name}]`"
            yield section(entry.name, title, inspect.getdoc(entry.model) or "", reference.fields_of(entry.model))
        if entry.model is TableSettings:
            name, fields = "streams.tables.columns", reference.fields_of(ColumnSettings)
            yield section(name, f"`[[{name}]]`", inspect.getdoc(ColumnSettings) or "", fields)


def section(name: str, title: str, says: str, fields: Iterable[reference.Entry]) -> str:
    rows = (
        (code(entry.path[-1]), entry.kind.replace("|", "or"), default_of(entry), entry.description)
        for entry in fields
        if not entry.model
    )
    anchor = f'<a id="{name.replace(".", "-")}"></a>\n\n' if name else ""
    return f"{anchor}## {title}\n\n{says}\n\n{table(('setting', 'what to write', 'default', 'meaning'), rows)}"


def default_of(entry: reference.Entry) -> str:
    if entry.path in REQUIRED:
        return REQUIRED[entry.path]
    if entry.required:
        return "required"
    return "" if entry.default is None else code(reference.as_toml(entry.default))


def schema_file() -> str:
    return json.dumps(json_schema.schema(), indent=2, ensure_ascii=False) + "\n"


# -- command line -----------------------------------------------------------------------------------------

VALUES = {str: "text", int: "number", float: "number"}
COMMANDS = """\
Every command prints its options with `--help`. Shell completion is installed by `lakehouse-ingest
--install-completion`. What the [exit codes](exit-codes.md) mean is the same for all commands.
"""


def command_page() -> str:
    """Read from typer's declarations, not from what it makes of them: those classes are its own business."""
    assert app.registered_callback
    assert app.registered_callback.callback
    options = table(OPTION, map(parameter, parameters_of(app.registered_callback.callback)))
    help_ = str(app.info.help)
    return page("Command line", help_, COMMANDS, f"Options before the command:\n\n{options}", *commands_of(app, ""))


OPTION = ("option", "value", "meaning")


def commands_of(group: typer.Typer, before: str) -> Iterator[str]:
    for command in group.registered_commands:
        assert command.callback
        name = f"{before}{command.name or command.callback.__name__.replace('_', '-')}"
        declared = [*parameters_of(command.callback)]
        arguments = [word for each in declared if (word := argument(each))]
        usage = " ".join(["lakehouse-ingest", name, "[OPTIONS]", *arguments])
        yield f"## {name}\n\n{inspect.getdoc(command.callback)}\n\n```text\n{usage}\n```"
        if declared:
            yield table(OPTION, map(parameter, declared))
    for inner in group.registered_groups:
        assert inner.typer_instance
        yield from commands_of(inner.typer_instance, f"{before}{inner.name} ")


Declared = tuple[str, Any, ParameterInfo, Any]


def parameters_of(function: Callable[..., Any]) -> Iterator[Declared]:
    """Name, type, what typer knows of it, and the default."""
    hints = get_type_hints(function, include_extras=True)
    for name, each in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])
        yield name, kind, info, None if each.default is inspect.Parameter.empty else each.default


def argument(declared: Declared) -> str:
    name, kind, info, default = declared
    if isinstance(info, OptionInfo):
        return ""
    shown = f"{name.upper()}{'...' if get_origin(bare(kind)) is list else ''}"
    return shown if default is None and kind is bare(kind) else f"[{shown}]"


def bare(kind: Any) -> Any:
    """Without what may be left out."""
    inner = [each for each in get_args(kind) if each is not type(None)]
    return inner[0] if type(None) in get_args(kind) else kind


def parameter(declared: Declared) -> tuple[str, str, str]:
    name, kind, info, default = declared
    # In an annotation typer takes the first name for a default.
    given = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    words = given or [f"--{name.replace('_', '-')}"]
    shown = ", ".join(map(code, words)) if isinstance(info, OptionInfo) else code(name.upper())
    says = [info.help or ""]
    if default is None and kind is bare(kind):
        says.append("Required.")
    elif default and kind is not bool:
        says.append(f"Default: {code(str(default))}.")
    if info.envvar:
        says.append(f"Variable: {code(str(info.envvar))}.")
    return shown, value_of(bare(kind), info), " ".join(says)


def value_of(kind: Any, info: ParameterInfo) -> str:
    if kind is bool:
        return ""
    if get_origin(kind) is list:
        return f"{value_of(get_args(kind)[0], info)}, several"
    if kind is Path:
        return "folder" if not info.file_okay else "path" if info.dir_okay else "file"
    return VALUES[kind] if kind in VALUES else " or ".join(code(str(each)) for each in kind)


# -- metrics, exit codes, reasons -------------------------------------------------------------------------

METRICS = """\
`telemetry.metrics` turns metrics on, and `telemetry.exporter` says where they go. In Prometheus the names are the ones
on the second line of each row. `lakehouse-ingest metrics` prints this list, with `--json` for programs.
"""


def metrics_page() -> str:
    _, _, rest = telemetry.metrics_page().partition("\n")
    return page("Metrics", METRICS, rest)


EXITS = """\
A service manager should restart the process after 1 and 4, and not after 2 and 3: the same start would be refused
again.
"""


def exit_page() -> str:
    rows = ((str(number), sentence(meaning)) for number, meaning in errors.EXIT_CODES.items())
    classes = (
        (code(each.__name__), str(each.exit_code), f"{code(each.__bases__[0].__name__)}")
        for each in error_classes(errors.LakehouseError)
    )
    return page(
        "Exit codes",
        table(("code", "meaning"), rows),
        EXITS,
        "Several streams: the process ends with the code of the first stream that failed. `recover`, `acknowledge` and"
        " `adopt` end with 3 as long as a choice or `--yes` is missing.",
        "## Errors in Python\n\nA caller of the Python API gets exceptions instead of exit codes. They are in"
        f" `lakehouse_ingest.errors`:\n\n{table(('exception', 'exit code', 'is a'), classes)}",
    )


def error_classes(base: type[errors.LakehouseError]) -> Iterator[type[errors.LakehouseError]]:
    for each in base.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from error_classes(each)


REASONS = """\
A record that cannot become a row is written to the dead-letter table, whole and with one of these reasons. The list is
closed: a new reason is a change that the release notes name. The column `detail` says what exactly was wrong.

```sql
SELECT reason, stage, count(*) FROM ingest.dead_letters GROUP BY 1, 2 ORDER BY 3 DESC
```

`streams.on_error` decides what happens instead: `raise` stops the stream at such a record, `ignore` discards and counts
it. The columns of the table are in [tables we keep](tables-we-keep.md#the-dead-letter-table).
"""


def reasons_page() -> str:
    rows = ((code(each), *dead_letters.EXPLAINED[each]) for each in Reason)
    return page("Dead-letter reasons", REASONS, table(("reason", "what was found", "what to do"), rows))


# -- tables -----------------------------------------------------------------------------------------------

KEPT = """\
All that a pipeline remembers is in its tables. This page lists everything that it leaves there: two tables of its own,
the columns that it adds to yours, and the names in snapshots, properties and branches by which a start knows where to
go on. Do not change any of these by hand.
"""
COORDINATES = {
    "topic": "Topic of the record.",
    "partition": "Its partition.",
    "offset": "Its offset.",
    "index": "Number of the row within the record; 0, unless a transform makes several rows of it.",
    "log": "A short hash of cluster and topic. A recreated topic has another one, though its name is the same.",
}
PLACES = {
    keys.DurablePlace.SUMMARY: "## In the summaries of snapshots",
    keys.DurablePlace.PROPERTY: "## In the properties of tables",
    keys.DurablePlace.REF: "## Branches",
    keys.DurablePlace.TABLE: "## Tables that come and go",
    keys.DurablePlace.DOC: "## In the doc strings of columns",
}


def tables_page() -> str:
    kinds = table(("kind", "meaning"), ((code(kind), sentence(meaning)) for kind, meaning in batch_log.KINDS.items()))
    parts = table(
        ("field", "type", "meaning"),
        ((code(name), kind, sentence(meaning)) for name, (kind, meaning) in batch_log.PARTITION.items()),
    )
    log = table(
        ("column", "type", "meaning"),
        (
            (
                code(each.name),
                each.type.partition("<struct")[0],
                "See below." if each.name in ("kind", "partitions") else sentence(each.doc or ""),
            )
            for each in batch_log.COLUMNS
        ),
    )
    dead = table(
        ("column", "type", "meaning"),
        ((code(each.name), each.iceberg, dead_letters.MEANINGS[each.name]) for each in dead_letters.COLUMNS),
    )
    assert all(f"{name}: " in SOURCE_TYPE for name in COORDINATES)
    return page(
        "Tables that we keep",
        KEPT,
        f"## The batch log\n\n`lakehouse_batches` (`ledger.batch_table`), partitioned by day(finished_at). It has one"
        f" row for each batch, and one for each table that the batch wrote to.\n\n{log}",
        f"Kinds of rows:\n\n{kinds}",
        f"Fields of `partitions`. received = landed + dead + filtered + discarded + trimmed, and end - start ="
        f" received + absent:\n\n{parts}",
        f"## The dead-letter table\n\n`dead_letters` (`dead_letters.table`), partitioned by"
        f" {dead_letters.PARTITIONS[0]}. See [the reasons](dead-letter-reasons.md).\n\n{dead}",
        "## Columns in your tables\n\n"
        + table(
            ("column", "type", "meaning"),
            (
                ("`event_time`", "timestamptz", "The event time of the record."),
                ("`_rescued`", "string", "JSON of the fields without a column, if the table's contract keeps them."),
                (code(SOURCE), "struct", "The coordinates of the record in its source."),
                *((code(f"{SOURCE}.{name}"), "", meaning) for name, meaning in COORDINATES.items()),
            ),
        ),
        *(f"{head}\n\n{keys_of(place)}" for place, head in PLACES.items()),
        "## Properties of Iceberg's own\n\nA new table gets these properties, so that other writers lay out its files"
        f" alike. `streams.tables.properties` sets further ones.\n\n{iceberg_properties()}",
    )


def keys_of(place: keys.DurablePlace) -> str:
    rows = ((code(each.shown.strip()), each.only_in, each.meaning) for each in keys.DURABLE if each.place is place)
    return table(("name", "in", "meaning"), rows)


def iceberg_properties() -> str:
    return table(
        ("property", "default"), ((code(key), code(value)) for key, value in FileOptions().properties().items())
    )


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "settings.schema.json": schema_file,
    "command-line.md": command_page,
    "metrics.md": metrics_page,
    "exit-codes.md": exit_page,
    "dead-letter-reasons.md": reasons_page,
    "tables-we-keep.md": tables_page,
}

if __name__ == "__main__":
    main()
