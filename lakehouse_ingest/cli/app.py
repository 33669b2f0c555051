"""The command line: words to settings to one verb. The verbs themselves are loaded when they are called.

An error is printed to standard error, and the exit code says who must act. With `--debug` before the verb the traceback
is printed as well.
"""

import importlib.metadata
import sys
import traceback
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse_ingest.environment.proxies import reach_this_machine
from lakehouse_ingest.environment.terminal import say
from lakehouse_ingest.errors import EXIT_CODES, LakehouseError, fitted
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.records import Choice

if TYPE_CHECKING:
    from lakehouse_ingest.settings import Loaded, Settings

DEBUG = ContextVar("debug", default=False)
LOADED: ContextVar["Loaded | None"] = ContextVar("loaded", default=None)  # for where a setting came from

EPILOG = f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}."

app = typer.Typer(
    help="Write records from Kafka into Apache Iceberg tables, exactly once.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
catalog = typer.Typer(help="Run the embedded Iceberg REST catalog by itself.", no_args_is_help=True)
app.add_typer(catalog, name="catalog")
jars_app = typer.Typer(help="Prepare the jars that Spark and the embedded servers need.", no_args_is_help=True)
app.add_typer(jars_app, name="jars")


class Form(StrEnum):
    toml = "toml"
    yaml = "yaml"


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", dir_okay=False, envvar="LAKEHOUSE_INGEST_CONFIG", help="Settings file, TOML or YAML."
    ),
]
Topics = Annotated[str | None, typer.Option(help="Comma-separated topics.")]
Name = Annotated[str | None, typer.Option(help="Name of the pipeline. Its streams write their marks under it.")]
Brokers = Annotated[str | None, typer.Option(help="Comma-separated bootstrap servers.")]
CatalogUri = Annotated[str | None, typer.Option(help="Address of the REST catalog. Without it: the embedded one.")]
Warehouse = Annotated[Path | None, typer.Option(help="Folder of the embedded catalog and of its tables.")]
Namespace = Annotated[str | None, typer.Option(help="Namespace of the tables.")]
Table = Annotated[str | None, typer.Option(help="Name of the table. {topic} is replaced by the topic.")]
EventTime = Annotated[str | None, typer.Option(help="Field that holds the event time.")]
Start = Annotated[
    str | None, typer.Option(help='Where to begin in a new topic: earliest, latest, a time, or {"topic": {"0": 42}}.')
]
Seek = Annotated[
    str | None, typer.Option(help='Takes precedence over --start: last offsets that need not be read, {"0": 41}.')
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        envvar="LAKEHOUSE_INGEST_ALLOW_CODE",
        help="Allow the settings to name code: functions, classes, jars.",
    ),
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Start even if changed settings give records another meaning.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Jars = Annotated[
    Path | None,
    typer.Option(
        envvar="LAKEHOUSE_INGEST_JARS",
        show_default=False,
        help="Folder that holds the jars. Without it they are downloaded once into a cache.",
    ),
]


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        say(importlib.metadata.version("lakehouse-ingest"))
        raise typer.Exit


@app.callback()
def root(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """`version` is done by its callback."""
    del version
    DEBUG.set(debug)
    reach_this_machine()


@app.command()
def run(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    table: Table = None,
    event_time: EventTime = None,
    every: Annotated[str | None, typer.Option(help="Commit interval, such as 5s.")] = None,
    start: Start = None,
    seek: Seek = None,
    max_batches: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Stop when each stream has committed this many batches."),
    ] = None,
    *,
    allow_code: AllowCode = False,
    until_latest: Annotated[
        bool, typer.Option("--until-latest", help="Stop when everything that is in the topics now has been committed.")
    ] = False,
    accept_changes: AcceptChanges = False,
    jars: Jars = None,
) -> None:
    """Ingest until Ctrl-C or SIGTERM. The current batch is committed before the process ends."""
    flags = {
        **_flags(topics, name, brokers, catalog_uri, warehouse, namespace),
        "--table": table,
        "--event-time": event_time,
        "--every": every,
        "--start": start,
        "--seek": seek,
    }
    settings = _settings(config, flags, allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import run as command  # noqa: PLC0415 - loads pyspark

    command.run(
        settings,
        RunOptions(until_latest, max_batches, accept_changes=accept_changes, allow_code=allow_code, jars=jars),
        reread=lambda: _settings(config, flags, allow_code=allow_code),
    )


@app.command()
def check(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    *,
    allow_code: AllowCode = False,
    jars: Jars = None,
) -> None:
    """Check whether `run` would work, by trying Java, jars, brokers, topics, catalog, warehouse. No table remains."""
    settings = _settings(config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=True)
    from lakehouse_ingest.cli.verbs import check as command  # noqa: PLC0415 - loads pyspark

    if code := command.check(settings, LOADED.get(), jars=jars, allow_code=allow_code):
        raise typer.Exit(code)


@app.command()
def plan(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    table: Table = None,
    event_time: EventTime = None,
    start: Start = None,
    seek: Seek = None,
    sample: Annotated[int, typer.Option(min=1, help="Read about this many records of each stream.")] = 10_000,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Read all records that are there now.")] = False,
    allow_code: AllowCode = False,
    accept_changes: AcceptChanges = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Show what `run` would create and change in the catalog, and which records it would dead-letter. Changes nothing.

    Exit code 0: nothing would change. 7: something would change. If `run` would be refused: the code of that refusal.
    """
    settings = _settings(
        config,
        {
            **_flags(topics, name, brokers, catalog_uri, warehouse, namespace),
            "--table": table,
            "--event-time": event_time,
            "--start": start,
            "--seek": seek,
        },
    )
    from lakehouse_ingest.cli.verbs import plan as command  # noqa: PLC0415 - loads pyspark

    looked_at = None if everything else sample
    options = RunOptions(sample=looked_at, accept_changes=accept_changes, allow_code=allow_code, jars=jars)
    if code := command.plan(settings, options, as_json=json):
        raise typer.Exit(code)


@app.command()
def status(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    *,
    allow_code: AllowCode = False,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every two seconds, until Ctrl-C.")] = False,
    jars: Jars = None,
) -> None:
    """Show what the tables hold: offsets, lag, the last batch, rows, files, snapshots. Changes nothing."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import status as command  # noqa: PLC0415 - loads pyiceberg

    command.status(settings, jars=jars, as_json=json, watch=watch)


@app.command()
def top(
    config: Config = None,
    url: Annotated[
        str | None,
        typer.Option(show_default=False, help="Address of its status page, instead of `health` in a settings file."),
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, as without a terminal.")] = False,
) -> None:
    """Watch a running pipeline: throughput, lag, freshness, batches, tables, dead-letter records, errors."""
    settings = None if url else _settings(config, {}, allow_code=True)
    from lakehouse_ingest.cli.verbs import top as command  # noqa: PLC0415 - loads rich

    command.top(settings.health if settings else None, url=url, once=once)


@app.command()
def verify(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    *,
    allow_code: AllowCode = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Count from the tables whether every offset is in exactly one place, and list the others. Changes nothing."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import verify as command  # noqa: PLC0415 - loads pyiceberg

    if code := command.verify(settings, jars=jars, as_json=json):
        raise typer.Exit(code)


@app.command()
def files(
    table: Annotated[
        str | None, typer.Argument(show_default=False, help="Name of a table. Without it: all tables of the namespace.")
    ] = None,
    config: Config = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    snapshot: Annotated[
        int | None, typer.Option(show_default=False, help="Id of an earlier snapshot whose files to list.")
    ] = None,
    *,
    allow_code: AllowCode = False,
    deletes: Annotated[
        bool,
        typer.Option(
            "--deletes",
            help="List delete files, too, each line with its kind in front. Without this option a table that has any"
            " is refused, because its data files alone would show deleted rows.",
        ),
    ] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """List the files that hold a table's rows now, one path on each line, for engines that read only files."""
    # A reader of files has no topics, so any name does.
    flags = _flags(None if config else "files", None, None, catalog_uri, warehouse, namespace)
    settings = _settings(config, flags, allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import files as command  # noqa: PLC0415 - loads pyiceberg

    command.files(settings, table, snapshot=snapshot, deletes=deletes, jars=jars, as_json=json)


@app.command()
def recover(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    choose: Annotated[
        Choice | None,
        typer.Option(
            show_default=False, help="The choice to carry out. Without this option the choices are explained."
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only for this topic or table.")] = None,
    *,
    allow_code: AllowCode = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Show what stops a pipeline from starting, such as a recreated topic, and the choices; carry out a choice."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import recover as command  # noqa: PLC0415 - loads pyiceberg

    if code := command.recover(settings, choice=choose, only=only, jars=jars, as_json=json):
        raise typer.Exit(code)


@app.command()
def acknowledge(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    reason: Annotated[
        str, typer.Option(show_default=False, help="Why the rows were deleted. It is kept with the offsets.")
    ] = "",
    only: Annotated[str | None, typer.Option(help="Only for this topic or table.")] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(show_default=False, help="Only these offsets: topic/partition/first-last. May be repeated."),
    ] = None,
    *,
    allow_code: AllowCode = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this option it only shows what it would do.")
    ] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Record that rows were deleted on purpose. `verify` then counts them as removed instead of lost."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import acknowledge as command  # noqa: PLC0415 - loads pyiceberg

    code = command.acknowledge(
        settings, reason=reason, only=only, offsets=offsets or (), yes=yes, jars=jars, as_json=json
    )
    if code:
        raise typer.Exit(code)


@app.command()
def promote(
    table: Annotated[str, typer.Option(show_default=False, help="Name of the table, or namespace.table.")],
    field: Annotated[str, typer.Option(show_default=False, help="The rescued field, as path.to.it.")],
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    type: Annotated[  # noqa: A002 - as it is typed
        str | None,
        typer.Option(show_default=False, help="Type of the column. Without it: the type of the values."),
    ] = None,
    *,
    allow_code: AllowCode = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this option it only shows what it would do.")
    ] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Turn a rescued field into a column, and fill the column for the rows that exist."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import promote as command  # noqa: PLC0415 - loads pyiceberg

    command.promote(settings, table, field, kind=type, yes=yes, jars=jars, as_json=json)


@app.command()
def adopt(
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    from_table: Annotated[
        str | None,
        typer.Option(help="Take the offsets of the Kafka Connect sink that wrote this table, namespace.name."),
    ] = None,
    from_checkpoint: Annotated[
        Path | None, typer.Option(file_okay=False, help="Take the offsets of a Spark query from its checkpoint folder.")
    ] = None,
    from_group: Annotated[
        str | None, typer.Option(help="Take the offsets that this Kafka consumer group has committed.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help='Take the offsets from a file; each is the next to read: {"topic": {"0": 42}}.'
        ),
    ] = None,
    *,
    allow_code: AllowCode = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on even if the topic no longer holds the next records.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this option it only shows what it would do.")
    ] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Take over tables that another program has written so far, and go on where that program stopped."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import adopt as command  # noqa: PLC0415 - loads pyiceberg
    from lakehouse_ingest.operations.adopt.takeover import OriginOption  # noqa: PLC0415 - likewise

    origin = OriginOption(from_table, from_checkpoint, from_group, from_file)
    if code := command.adopt(settings, origin, yes=yes, accept_loss=accept_loss, jars=jars, as_json=json):
        raise typer.Exit(code)


@app.command()
def settings(
    config: Config = None,
    *,
    example: Annotated[
        Form | None, typer.Option(help="Print a settings file with every setting, its default and its meaning.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a settings file, for editors.")
    ] = False,
    json: Json = False,
) -> None:
    """List all settings. With a settings file: the values in force, and where each of them came from."""
    from lakehouse_ingest.cli.verbs import settings as command  # noqa: PLC0415

    if schema:
        command.schema()
    elif example:
        command.example(example.value)
    elif config:
        _settings(config, {}, allow_code=True)
        loaded = LOADED.get()
        assert loaded
        command.show_in_force(loaded, as_json=json)
    else:
        command.show_reference(as_json=json)


@app.command()
def metrics(*, json: Json = False) -> None:
    """List all metrics as a page in Markdown: names, units, attributes, meanings."""
    from lakehouse_ingest.cli.verbs import metrics as command  # noqa: PLC0415

    command.metrics(as_json=json)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the warehouse, the broker's records and demo.json.")
    ] = Path("demo"),
    seconds: Annotated[float, typer.Option(min=1, help="How long records are produced.")] = 30,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running until Ctrl-C.")] = False,
    jars: Jars = None,
) -> None:
    """Run a broker, a catalog and invented sensors on this machine; ingest their records and read them back."""
    from lakehouse_ingest.cli.verbs import demo as command  # noqa: PLC0415 - loads pyspark

    command.demo(folder, seconds, keep=keep, jars=jars)


@catalog.command()
def serve(
    config: Config = None,
    warehouse: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            show_default=False,
            help="Folder of the catalog and of its tables; created if missing. Without it: that of the settings file,"
            " or ./lakehouse.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Port to listen on, at 127.0.0.1. Without it: the last one that was used, else 8181 or the next free"
            " one. 0: any free port.",
        ),
    ] = None,
    jars: Jars = None,
) -> None:
    """Serve a warehouse folder to every Iceberg reader and writer on this machine, until Ctrl-C."""
    from lakehouse_ingest.cli.verbs import catalog as command  # noqa: PLC0415 - likewise
    from lakehouse_ingest.tables.clients import embedded  # noqa: PLC0415 - loads pyspark

    # A server of tables has no topics, so any name does.
    settings = _settings(
        config, _flags(None if config else "tables", None, None, None, warehouse, None), allow_code=True
    )
    command.serve(embedded(settings.catalog, settings.s3, jars, port))


@jars_app.command()
def bundle(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, show_default=False, help="The folder; created if missing.")
    ],
    kinds: Annotated[
        list[str] | None,
        typer.Argument(show_default=False, help="Kinds of jars, such as spark, catalog or broker. Without any: all."),
    ] = None,
) -> None:
    """Download all jars into a folder, for a machine without a network. Name it there in LAKEHOUSE_INGEST_JARS."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.bundle(folder, kinds)


@jars_app.command()
def warm() -> None:
    """Build a class-data archive for Java (180 MB). Every later start on this machine is faster."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.warm()


@app.command()
def clean() -> None:
    """Remove the downloaded jars. Tables are not touched."""
    from lakehouse_ingest.cli.verbs import clean as command  # noqa: PLC0415 - loads pyspark

    command.clean()


def _flags(
    topics: str | None,
    name: str | None,
    brokers: str | None,
    catalog_uri: str | None,
    warehouse: Path | None,
    namespace: str | None,
) -> dict[str, Any]:
    """The flags that every verb about a pipeline takes."""
    return {
        "--topics": topics,
        "--name": name,
        "--brokers": brokers,
        "--catalog-uri": catalog_uri,
        "--warehouse": warehouse,
        "--namespace": namespace,
    }


def _settings(config: Path | None, flags: dict[str, Any], *, allow_code: bool = False) -> "Settings":
    """A verb that refuses code by itself, or uses nothing that names code, gives `allow_code` as well."""
    from lakehouse_ingest.settings import from_flags, load  # noqa: PLC0415 - help and version need no pydantic
    from lakehouse_ingest.settings.named_code import refuse_code  # noqa: PLC0415 - likewise

    topics = flags.get("--topics")
    loaded = load(
        config,
        from_flags(
            {**flags, "--topics": [each.strip() for each in topics.split(",") if each.strip()] if topics else None}
        ),
    )
    LOADED.set(loaded)
    refuse_code(loaded.settings, allow_code=allow_code)
    return loaded.settings


def main() -> None:
    """The entry point; every error of ours ends here."""
    try:
        app()
    except LakehouseError as error:
        if DEBUG.get():
            say(traceback.format_exc(), err=True)
        loaded = LOADED.get()
        say(f"lakehouse-ingest: {fitted(loaded.explained(str(error)) if loaded else str(error))}", err=True)
        sys.exit(error.exit_code)
    except Exception as bug:  # noqa: BLE001 - a bug is reported in a sentence, too
        if DEBUG.get():
            say(traceback.format_exc(), err=True)
        said = " ".join(str(bug).split())[:120]
        say(
            f"lakehouse-ingest: internal error ({type(bug).__name__}: {said}); please report it with the output of"
            " `lakehouse-ingest --debug` and the same words",
            err=True,
        )
        sys.exit(1)
