"""Words to settings to one command. The verbs themselves are in `commands`, loaded when they are called.

An error of ours is one sentence on standard error and an exit code that says who must act; `--debug` before
the verb adds where it came from.
"""

import importlib.metadata
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from lakehouse_ingest.errors import LakehouseError

DEBUG = ContextVar("debug", default=False)

app = typer.Typer(
    help="Events from Kafka into Apache Iceberg tables, exactly once, behind an Iceberg REST catalog.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
catalog = typer.Typer(help="The embedded Iceberg REST catalog.", no_args_is_help=True)
app.add_typer(catalog, name="catalog")

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
        typer.echo(importlib.metadata.version("lakehouse-ingest"))
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


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            dir_okay=False,
            help="Settings file, TOML or YAML.",
            envvar="LAKEHOUSE_INGEST_CONFIG",
        ),
    ] = None,
    topics: Annotated[str | None, typer.Option(help="Topics, with commas between.")] = None,
    name: Annotated[str | None, typer.Option(help="The pipeline's name in the ledger.")] = None,
    brokers: Annotated[str | None, typer.Option(help="Bootstrap servers.")] = None,
    catalog_uri: Annotated[str | None, typer.Option(help="REST catalog; absent: the embedded one.")] = None,
    warehouse: Annotated[Path | None, typer.Option(help="Folder of the embedded catalog and its tables.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace of the tables.")] = None,
    table: Annotated[str | None, typer.Option(help="Table; {topic} stands for the topic.")] = None,
    event_time: Annotated[str | None, typer.Option(help="Field that holds the event time.")] = None,
    every: Annotated[str | None, typer.Option(help="Land at the latest so long after the last landing: 5s.")] = None,
    start: Annotated[str | None, typer.Option(help="Where a new topic begins: earliest or latest.")] = None,
    *,
    until_latest: Annotated[
        bool, typer.Option("--until-latest", help="End when all that is there now has landed.")
    ] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although the settings mean something else now.")
    ] = False,
    jars: Jars = None,
) -> None:
    """Ingest until Ctrl-C or SIGTERM: what is under way lands first."""
    from lakehouse_ingest import settings  # noqa: PLC0415
    from lakehouse_ingest.commands import run as command  # noqa: PLC0415 - loads pyspark

    stream = {"topics": topics.split(",") if topics else None, "every": every}
    given = {
        "name": name,
        "source.brokers": brokers,
        "source.start": start,
        "catalog.uri": catalog_uri,
        "catalog.path": warehouse,
        "catalog.namespace": namespace,
    }
    loaded = settings.load_settings(config, settings.given(given, stream, {"table": table, "event_time": event_time}))
    command.run(loaded, jars=jars, drain=until_latest, accept_changes=accept_changes)


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
    from lakehouse_ingest.commands import demo as command  # noqa: PLC0415 - loads pyspark

    command.demo(folder, seconds, keep=keep, jars=jars)


@catalog.command()
def serve(
    warehouse: Annotated[
        Path, typer.Option(file_okay=False, help="The folder that holds tables and catalog; made if absent.")
    ] = Path("lakehouse"),
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Where to listen on 127.0.0.1; without it where it was the last time, else at 8181 or the "
            "next free port; 0 for any.",
        ),
    ] = None,
    jars: Jars = None,
) -> None:
    """Serve a warehouse folder to any Iceberg reader and writer on this machine, until Ctrl-C."""
    from lakehouse_ingest.commands import catalog as command  # noqa: PLC0415 - loads pyspark

    command.serve(warehouse, port, jars=jars)


@app.command()
def clean() -> None:
    """Remove the downloaded jars. Tables stay."""
    from lakehouse_ingest.commands import clean as command  # noqa: PLC0415 - loads pyspark

    command.clean()


def main() -> None:
    """The command; every error of ours ends here."""
    try:
        app()
    except LakehouseError as error:
        if DEBUG.get():
            raise
        typer.echo(f"lakehouse-ingest: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
