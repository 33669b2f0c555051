"""The command line: words to settings to one verb. The verbs themselves are loaded when they are called.

An error is printed to standard error, and the exit code says who must act. With `--debug` before the verb the traceback
is printed as well.
"""

import gc
import importlib.metadata
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from lakehouse_ingest.cli import options
from lakehouse_ingest.cli.options import CONNECTION, FLAGS, LOADED, PIPELINE, Given, pipeline_options
from lakehouse_ingest.environment.proxies import reach_this_machine
from lakehouse_ingest.environment.terminal import say
from lakehouse_ingest.errors import EXIT_CODES, LakehouseError, fitted
from lakehouse_ingest.pipeline.options import RunOptions

DEBUG = ContextVar("debug", default=False)

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


@contextmanager
def _importing() -> Iterator[None]:
    """What is imported stays. To look for garbage among it meanwhile takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
@pipeline_options(*FLAGS)
def run(
    *,
    given: Given,
    max_batches: options.MaxBatches = None,
    allow_code: options.AllowCode = False,
    until_latest: options.UntilLatest = False,
    accept_changes: options.AcceptChanges = False,
    jars: options.Jars = None,
) -> None:
    """Ingest until Ctrl-C or SIGTERM. The current batch is committed before the process ends."""
    settings = given.settings(allow_code=allow_code)
    with _importing():
        from lakehouse_ingest.cli.verbs import run as command  # noqa: PLC0415 - loads pyspark

    command.run(
        settings,
        RunOptions(until_latest, max_batches, accept_changes=accept_changes, allow_code=allow_code, jars=jars),
        reread=lambda: given.settings(allow_code=allow_code),
    )


@app.command()
@pipeline_options(*PIPELINE)
def check(*, given: Given, allow_code: options.AllowCode = False, jars: options.Jars = None) -> None:
    """Check whether `run` would work, by trying Java, jars, brokers, topics, catalog, warehouse. No table remains."""
    loaded = given.load(allow_code=True)
    with _importing():
        from lakehouse_ingest.cli.verbs import check as command  # noqa: PLC0415 - loads pyspark

    _exit(command.check(loaded.settings, loaded, jars=jars, allow_code=allow_code))


@app.command()
@pipeline_options(*(flag for flag in FLAGS if flag != "--every"))
def plan(
    *,
    given: Given,
    sample: options.Sample = 10_000,
    everything: options.Everything = False,
    allow_code: options.AllowCode = False,
    accept_changes: options.AcceptChanges = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Show what `run` would create and change in the catalog, and which records it would dead-letter. Changes nothing.

    Exit code 0: nothing would change. 7: something would change. If `run` would be refused: the code of that refusal.
    """
    settings = given.settings(allow_code=allow_code)
    with _importing():
        from lakehouse_ingest.cli.verbs import plan as command  # noqa: PLC0415 - loads pyspark

    looked_at = None if everything else sample
    how = RunOptions(sample=looked_at, accept_changes=accept_changes, allow_code=allow_code, jars=jars)
    _exit(command.plan(settings, how, as_json=json))


@app.command()
@pipeline_options(*PIPELINE)
def status(
    *,
    given: Given,
    allow_code: options.AllowCode = False,
    json: options.Json = False,
    watch: options.Repeat = False,
    jars: options.Jars = None,
) -> None:
    """Show what the tables hold: offsets, lag, the last batch, rows, files, snapshots. Changes nothing."""
    settings = given.settings(allow_code=allow_code)
    with _importing():
        from lakehouse_ingest.cli.verbs import status as command  # noqa: PLC0415 - loads pyiceberg

    command.status(settings, jars=jars, as_json=json, watch=watch)


@app.command()
@pipeline_options()
def top(*, given: Given, url: options.Url = None, once: options.Once = False) -> None:
    """Watch a running pipeline: throughput, lag, freshness, batches, tables, dead-letter records, errors."""
    health = None if url else given.settings(allow_code=True).health
    from lakehouse_ingest.cli.verbs import top as command  # noqa: PLC0415 - loads rich

    command.top(health, url=url, once=once)


@app.command()
@pipeline_options(*PIPELINE)
def verify(
    *,
    given: Given,
    allow_code: options.AllowCode = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Count from the tables whether every offset is in exactly one place, and list the others. Changes nothing."""
    settings = given.settings(allow_code=allow_code)
    with _importing():
        from lakehouse_ingest.cli.verbs import verify as command  # noqa: PLC0415 - loads pyiceberg

    _exit(command.verify(settings, jars=jars, as_json=json))


@app.command()
@pipeline_options(*CONNECTION)
def files(
    *,
    table: options.TableArgument = None,
    given: Given,
    snapshot: options.EarlierSnapshot = None,
    allow_code: options.AllowCode = False,
    deletes: options.Deletes = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """List the files that hold a table's rows now, one path on each line, for engines that read only files."""
    settings = given.without_topics().settings(allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import files as command  # noqa: PLC0415 - loads pyiceberg

    command.files(settings, table, snapshot=snapshot, deletes=deletes, jars=jars, as_json=json)


@app.command()
@pipeline_options(*PIPELINE)
def recover(
    *,
    given: Given,
    choose: options.Chosen = None,
    only: options.Only = None,
    allow_code: options.AllowCode = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Show what stops a pipeline from starting, such as a recreated topic, and the choices; carry out a choice."""
    settings = given.settings(allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import recover as command  # noqa: PLC0415 - loads pyiceberg

    _exit(command.recover(settings, choice=choose, only=only, jars=jars, as_json=json))


@app.command()
@pipeline_options(*PIPELINE)
def acknowledge(
    *,
    given: Given,
    reason: options.WhyDeleted = "",
    only: options.Only = None,
    offsets: options.OnlyOffsets = None,
    allow_code: options.AllowCode = False,
    yes: options.Yes = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Record that rows were deleted on purpose. `verify` then counts them as removed instead of lost."""
    settings = given.settings(allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import acknowledge as command  # noqa: PLC0415 - loads pyiceberg

    _exit(
        command.acknowledge(settings, reason=reason, only=only, offsets=offsets or (), yes=yes, jars=jars, as_json=json)
    )


@app.command()
@pipeline_options(*PIPELINE)
def promote(
    *,
    table: options.TableOption,
    field: options.RescuedField,
    given: Given,
    type: options.TypeOfColumn = None,  # noqa: A002 - as it is typed
    allow_code: options.AllowCode = False,
    yes: options.Yes = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Turn a rescued field into a column, and fill the column for the rows that exist."""
    settings = given.settings(allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import promote as command  # noqa: PLC0415 - loads pyiceberg

    command.promote(settings, table, field, kind=type, yes=yes, jars=jars, as_json=json)


@app.command()
@pipeline_options(*PIPELINE)
def adopt(
    *,
    given: Given,
    from_table: options.FromTable = None,
    from_checkpoint: options.FromCheckpoint = None,
    from_group: options.FromGroup = None,
    from_file: options.FromFile = None,
    allow_code: options.AllowCode = False,
    accept_loss: options.AcceptLoss = False,
    yes: options.Yes = False,
    json: options.Json = False,
    jars: options.Jars = None,
) -> None:
    """Take over tables that another program has written so far, and go on where that program stopped."""
    settings = given.settings(allow_code=allow_code)
    from lakehouse_ingest.cli.verbs import adopt as command  # noqa: PLC0415 - loads pyiceberg
    from lakehouse_ingest.operations.adopt.takeover import OriginOption  # noqa: PLC0415 - likewise

    origin = OriginOption(from_table, from_checkpoint, from_group, from_file)
    _exit(command.adopt(settings, origin, yes=yes, accept_loss=accept_loss, jars=jars, as_json=json))


@app.command()
@pipeline_options()
def settings(
    *,
    given: Given,
    example: options.Example = None,
    schema: options.Schema = False,
    json: options.Json = False,
) -> None:
    """List all settings. With a settings file: the values in force, and where each of them came from."""
    from lakehouse_ingest.cli.verbs import settings as command  # noqa: PLC0415

    if schema:
        command.schema()
    elif example:
        command.example(example.value)
    elif given.config:
        command.show_in_force(given.load(allow_code=True), as_json=json)
    else:
        command.show_reference(as_json=json)


@app.command()
def metrics(*, json: options.Json = False) -> None:
    """List all metrics as a page in Markdown: names, units, attributes, meanings."""
    from lakehouse_ingest.cli.verbs import metrics as command  # noqa: PLC0415

    command.metrics(as_json=json)


@app.command()
def demo(
    *,
    folder: options.DemoFolder = Path("demo"),
    seconds: options.Seconds = 30,
    keep: options.Keep = False,
    jars: options.Jars = None,
) -> None:
    """Run a broker, a catalog and invented sensors on this machine; ingest their records and read them back."""
    with _importing():
        from lakehouse_ingest.cli.verbs import demo as command  # noqa: PLC0415 - loads pyspark

    command.demo(folder, seconds, keep=keep, jars=jars)


@catalog.command()
@pipeline_options()
def serve(
    *,
    given: Given,
    warehouse: options.ServedWarehouse = None,
    port: options.Port = None,
    jars: options.Jars = None,
) -> None:
    """Serve a warehouse folder to every Iceberg reader and writer on this machine, until Ctrl-C."""
    from lakehouse_ingest.cli.verbs import catalog as command  # noqa: PLC0415 - likewise
    from lakehouse_ingest.tables.clients import embedded  # noqa: PLC0415 - loads pyspark

    settings = given.without_topics(warehouse).settings(allow_code=True)
    command.serve(embedded(settings.catalog, settings.s3, jars, port))


@jars_app.command()
def bundle(*, folder: options.BundleFolder, kinds: options.Kinds = None) -> None:
    """Download all jars into a folder, for a machine without a network. Name it there in LAKEHOUSE_INGEST_JARS."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.bundle(folder, kinds)


@jars_app.command()
def warm() -> None:
    """Build class-data archives for Java (230 MB). Every later start on this machine is faster."""
    from lakehouse_ingest.cli.verbs import jars as command  # noqa: PLC0415 - loads pyspark

    command.warm()


@app.command()
def clean() -> None:
    """Remove the downloaded jars, and what `jars warm` has made. Tables are not touched."""
    from lakehouse_ingest.cli.verbs import clean as command  # noqa: PLC0415 - loads pyspark

    command.clean()


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


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
