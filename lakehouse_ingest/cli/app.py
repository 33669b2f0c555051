"""Words to settings to one command. The verbs themselves are in `commands`, loaded when they are called.

An error of ours is one sentence on standard error and an exit code that says who must act; `--debug` before
the verb adds where it came from.
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
from lakehouse_ingest.errors import LakehouseError, fitted
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.records import Choice

if TYPE_CHECKING:
    from lakehouse_ingest.settings import Loaded, Settings

DEBUG = ContextVar("debug", default=False)
LOADED: ContextVar["Loaded | None"] = ContextVar("loaded", default=None)  # for where a setting came from

EXIT_CODES = """\
Exit codes: 0 done, or asked to stop; 2 the settings are wrong; 3 a person has to decide, and the sentence says what; \
4 something outside stayed away; 5 `verify` has found something wrong; 6 it can't tell of something; 7 by `plan` the \
catalog would change; 130 Ctrl-C before there was anything to end in order; 1 anything else."""

app = typer.Typer(
    help="Events from Kafka into Apache Iceberg tables, exactly once, behind an Iceberg REST catalog.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
catalog = typer.Typer(help="The embedded Iceberg REST catalog.", no_args_is_help=True)
app.add_typer(catalog, name="catalog")
jars_app = typer.Typer(help="The jars that are downloaded once.", no_args_is_help=True)
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
Topics = Annotated[str | None, typer.Option(help="Topics, with commas between.")]
Name = Annotated[str | None, typer.Option(help="The pipeline's name in the ledger.")]
Brokers = Annotated[str | None, typer.Option(help="Bootstrap servers.")]
CatalogUri = Annotated[str | None, typer.Option(help="REST catalog; absent: the embedded one.")]
Warehouse = Annotated[Path | None, typer.Option(help="Folder of the embedded catalog and its tables.")]
Namespace = Annotated[str | None, typer.Option(help="Namespace of the tables.")]
Table = Annotated[str | None, typer.Option(help="Table; {topic} stands for the topic.")]
EventTime = Annotated[str | None, typer.Option(help="Field that holds the event time.")]
Start = Annotated[
    str | None, typer.Option(help='Where a new topic begins: earliest, latest, a time, or {"topic": {"0": 42}}.')
]
Seek = Annotated[str | None, typer.Option(help='Before --start: the last offsets that need not be read, {"0": 41}.')]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        envvar="LAKEHOUSE_INGEST_ALLOW_CODE",
        help="Run the code that settings name: functions, classes, jars.",
    ),
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Go on although the settings mean something else now.")
]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Jars = Annotated[
    Path | None,
    typer.Option(
        envvar="LAKEHOUSE_INGEST_JARS",
        show_default=False,
        help="A folder that holds the jars already; without it they are downloaded once into a cache.",
    ),
]


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        say(importlib.metadata.version("lakehouse-ingest"))
        raise typer.Exit


@app.callback()
def root(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
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
    every: Annotated[str | None, typer.Option(help="Land at the latest so long after the last landing: 5s.")] = None,
    start: Start = None,
    seek: Seek = None,
    max_batches: Annotated[
        int | None, typer.Option(min=1, show_default=False, help="End when each stream has landed so many batches.")
    ] = None,
    *,
    allow_code: AllowCode = False,
    until_latest: Annotated[
        bool, typer.Option("--until-latest", help="End when all that is there now has landed.")
    ] = False,
    accept_changes: AcceptChanges = False,
    jars: Jars = None,
) -> None:
    """Ingest until Ctrl-C or SIGTERM: what is under way lands first."""
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
    """Say whether `run` would work, by trying: Java, jars, brokers, topics, catalog, warehouse. Leaves no table."""
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
    sample: Annotated[int, typer.Option(min=1, help="Look at about so many records of each stream.")] = 10_000,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Look at all that is there now.")] = False,
    allow_code: AllowCode = False,
    accept_changes: AcceptChanges = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Say what `run` would make and change in the catalog, and of which records dead letters. Changes nothing.

    Exit code 0: nothing would change; 7: something would; where the start would be refused, that code.
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
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until Ctrl-C.")] = False,
    jars: Jars = None,
) -> None:
    """What the tables know: offsets, lag, the last batch, rows, files, snapshots. Changes none of it."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import status as command  # noqa: PLC0415 - loads pyiceberg

    command.status(settings, jars=jars, as_json=json, watch=watch)


@app.command()
def top(
    config: Config = None,
    url: Annotated[
        str | None, typer.Option(show_default=False, help="Where it serves its page, instead of `health` of a file.")
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="One look, then end, as without a terminal.")] = False,
) -> None:
    """What a running pipeline is doing now: throughput, lag, freshness, batches, tables, dead letters, errors."""
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
    """Recount from the tables: every offset in exactly one place, or what is not. Changes nothing."""
    settings = _settings(
        config, _flags(topics, name, brokers, catalog_uri, warehouse, namespace), allow_code=allow_code
    )
    from lakehouse_ingest.cli.verbs import verify as command  # noqa: PLC0415 - loads pyiceberg

    if code := command.verify(settings, jars=jars, as_json=json):
        raise typer.Exit(code)


@app.command()
def files(
    table: Annotated[
        str | None, typer.Argument(show_default=False, help="A table; without it all tables of the namespace.")
    ] = None,
    config: Config = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    snapshot: Annotated[int | None, typer.Option(show_default=False, help="Those of an earlier snapshot.")] = None,
    *,
    allow_code: AllowCode = False,
    deletes: Annotated[
        bool,
        typer.Option(
            "--deletes",
            help="List the files that delete rows of others too, each line with its kind in front; without this a table"
            " that has any is refused: its files alone would show deleted rows.",
        ),
    ] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """List the files that hold a table's rows now, a path a line, for engines that know only files."""
    # Whoever reads files has no topics: any name does.
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
        Choice | None, typer.Option(show_default=False, help="Do it: what the choices mean is said without this.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Of this topic or table alone.")] = None,
    *,
    allow_code: AllowCode = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Say what keeps a pipeline from starting, such as a topic made anew, and what can be done; do what is chosen."""
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
    reason: Annotated[str, typer.Option(show_default=False, help="Why; it is kept with the ranges.")] = "",
    only: Annotated[str | None, typer.Option(help="What this topic or table alone has lost.")] = None,
    offsets: Annotated[
        list[str] | None, typer.Option(show_default=False, help="These alone: topic/partition/first-last; repeatable.")
    ] = None,
    *,
    allow_code: AllowCode = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it says what would be done.")] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Note that rows were taken out on purpose, as by an erasure: `verify` then counts them as removed, not lost."""
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
    table: Annotated[str, typer.Option(show_default=False, help="The table, or namespace.table.")],
    field: Annotated[str, typer.Option(show_default=False, help="The field that was set aside; path.to.it.")],
    config: Config = None,
    topics: Topics = None,
    name: Name = None,
    brokers: Brokers = None,
    catalog_uri: CatalogUri = None,
    warehouse: Warehouse = None,
    namespace: Namespace = None,
    type: Annotated[  # noqa: A002 - as it is typed
        str | None,
        typer.Option(show_default=False, help="Of the column; without it that of the values."),
    ] = None,
    *,
    allow_code: AllowCode = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: what would be done is said without this.")] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Make a field that contracts have set aside a column of its own, and fill it for the rows that are there."""
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
        str | None, typer.Option(help="The offsets of the Kafka Connect sink that has fed this table, namespace.name.")
    ] = None,
    from_checkpoint: Annotated[
        Path | None, typer.Option(file_okay=False, help="Those of a Spark query, by its checkpoint folder.")
    ] = None,
    from_group: Annotated[str | None, typer.Option(help="Those that a Kafka consumer group has committed.")] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help='Those of a file, each the next to read: {"topic": {"0": 42}}.'),
    ] = None,
    *,
    allow_code: AllowCode = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Although the topic no longer holds what comes next.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: what would be done is said without this.")] = False,
    json: Json = False,
    jars: Jars = None,
) -> None:
    """Take over tables that another writer has fed so far: say where it has ended, and go on from there."""
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
        Form | None, typer.Option(help="A file with every setting, its default and what it is for.")
    ] = None,
    json: Json = False,
) -> None:
    """What there is to set; with a settings file what is in force, and where each value came from."""
    from lakehouse_ingest.cli.verbs import settings as command  # noqa: PLC0415

    if example:
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
    """What is measured, as a page in Markdown: names, units, attributes, meanings."""
    from lakehouse_ingest.cli.verbs import metrics as command  # noqa: PLC0415

    command.metrics(as_json=json)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option(file_okay=False, help="Where the warehouse, the broker's records and demo.json are left.")
    ] = Path("demo"),
    seconds: Annotated[float, typer.Option(min=1, help="How long events are produced.")] = 30,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it all running until Ctrl-C.")] = False,
    jars: Jars = None,
) -> None:
    """Show it: a broker, a catalog and made-up sensors on this machine, ingested and read back, within a minute."""
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
            help="The folder that holds tables and catalog, made if absent; without it that of the settings file, or"
            " ./lakehouse.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Where to listen on 127.0.0.1; without it where it was the last time, else at 8181 or the "
            "next free one; 0 for any.",
        ),
    ] = None,
    jars: Jars = None,
) -> None:
    """Serve a warehouse folder to any Iceberg reader and writer on this machine, until Ctrl-C."""
    from lakehouse_ingest.cli.verbs import catalog as command  # noqa: PLC0415 - likewise
    from lakehouse_ingest.tables.clients import embedded  # noqa: PLC0415 - loads pyspark

    # Whoever serves tables has no topics: any name does.
    settings = _settings(
        config, _flags(None if config else "tables", None, None, None, warehouse, None), allow_code=True
    )
    command.serve(embedded(settings.catalog, settings.s3, jars, port))


@jars_app.command()
def bundle(
    folder: Annotated[Path, typer.Argument(file_okay=False, show_default=False, help="Made if absent.")],
    kinds: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="spark, catalog, broker …; without any: all.")
    ] = None,
) -> None:
    """Make the folder for a machine without a network, whose LAKEHOUSE_INGEST_JARS will name it."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.bundle(folder, kinds)


@jars_app.command()
def warm() -> None:
    """Keep Spark's classes as Java maps them: every later start on this machine is faster. 180 MB, once."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.warm()


@app.command()
def clean() -> None:
    """Remove the downloaded jars. Tables stay."""
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
    """What every verb that is about a pipeline can be told without a file."""
    return {
        "--topics": topics,
        "--name": name,
        "--brokers": brokers,
        "--catalog-uri": catalog_uri,
        "--warehouse": warehouse,
        "--namespace": namespace,
    }


def _settings(config: Path | None, flags: dict[str, Any], *, allow_code: bool = False) -> "Settings":
    """`allow_code`, too, where the verb refuses what names code by itself, or uses nothing that could."""
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
    """The command; every error of ours ends here."""
    try:
        app()
    except LakehouseError as error:
        if DEBUG.get():
            say(traceback.format_exc(), err=True)
        loaded = LOADED.get()
        say(f"lakehouse-ingest: {fitted(loaded.explained(str(error)) if loaded else str(error))}", err=True)
        sys.exit(error.exit_code)
    except Exception as bug:  # noqa: BLE001 - the last net: a sentence, not a stack
        if DEBUG.get():
            say(traceback.format_exc(), err=True)
        said = " ".join(str(bug).split())[:120]
        say(
            f"lakehouse-ingest: this should not happen ({type(bug).__name__}: {said}); with --debug before the verb it"
            " says where",
            err=True,
        )
        sys.exit(1)
