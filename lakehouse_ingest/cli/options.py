"""The options and arguments of the command line, and how the shared ones become settings.

A verb says with `@pipeline_options` which flags of a pipeline it takes, and has one parameter for all of them, `given`.
Which setting a flag changes stands in `FLAGS` of `settings.layers`. Its help stands here: `--help` needs no pydantic.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakehouse_ingest.records import Choice

if TYPE_CHECKING:
    from lakehouse_ingest.settings import Loaded, Settings

LOADED: ContextVar["Loaded | None"] = ContextVar("loaded", default=None)  # for where a setting came from

# -- shared by several verbs ------------------------------------------------------------------------------

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", dir_okay=False, envvar="LAKEHOUSE_INGEST_CONFIG", help="Settings file, TOML or YAML."
    ),
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
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this option it only shows what it would do.")]
Only = Annotated[str | None, typer.Option(help="Only for this topic or table.")]

# -- run, plan, status, top -------------------------------------------------------------------------------

MaxBatches = Annotated[
    int | None,
    typer.Option(min=1, show_default=False, help="Stop when each stream has committed this many batches."),
]
UntilLatest = Annotated[
    bool, typer.Option("--until-latest", help="Stop when everything that is in the topics now has been committed.")
]
Sample = Annotated[int, typer.Option(min=1, help="Read about this many records of each stream.")]
Everything = Annotated[bool, typer.Option("--all", help="Read all records that are there now.")]
Repeat = Annotated[bool, typer.Option("--watch", help="Repeat every two seconds, until Ctrl-C.")]
Url = Annotated[
    str | None,
    typer.Option(show_default=False, help="Address of its status page, instead of `health` in a settings file."),
]
Once = Annotated[bool, typer.Option("--once", help="Print once and exit, as without a terminal.")]

# -- files ------------------------------------------------------------------------------------------------

TableArgument = Annotated[
    str | None, typer.Argument(show_default=False, help="Name of a table. Without it: all tables of the namespace.")
]
EarlierSnapshot = Annotated[
    int | None, typer.Option(show_default=False, help="Id of an earlier snapshot whose files to list.")
]
Deletes = Annotated[
    bool,
    typer.Option(
        "--deletes",
        help="List delete files, too, each line with its kind in front. Without this option a table that has any"
        " is refused, because its data files alone would show deleted rows.",
    ),
]

# -- recover, acknowledge, promote, adopt -----------------------------------------------------------------

Chosen = Annotated[
    Choice | None,
    typer.Option(show_default=False, help="The choice to carry out. Without this option the choices are explained."),
]
WhyDeleted = Annotated[
    str, typer.Option(show_default=False, help="Why the rows were deleted. It is kept with the offsets.")
]
OnlyOffsets = Annotated[
    list[str] | None,
    typer.Option(show_default=False, help="Only these offsets: topic/partition/first-last. May be repeated."),
]
TableOption = Annotated[str, typer.Option(show_default=False, help="Name of the table, or namespace.table.")]
RescuedField = Annotated[str, typer.Option(show_default=False, help="The rescued field, as path.to.it.")]
TypeOfColumn = Annotated[
    str | None,
    typer.Option(show_default=False, help="Type of the column. Without it: the type of the values."),
]
FromTable = Annotated[
    str | None,
    typer.Option(help="Take the offsets of the Kafka Connect sink that wrote this table, namespace.name."),
]
FromCheckpoint = Annotated[
    Path | None, typer.Option(file_okay=False, help="Take the offsets of a Spark query from its checkpoint folder.")
]
FromGroup = Annotated[str | None, typer.Option(help="Take the offsets that this Kafka consumer group has committed.")]
FromFile = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help='Take the offsets from a file; each is the next to read: {"topic": {"0": 42}}.'),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Go on even if the topic no longer holds the next records.")
]

# -- settings, demo, catalog serve, jars bundle -----------------------------------------------------------


class Form(StrEnum):
    toml = "toml"
    yaml = "yaml"


Example = Annotated[
    Form | None, typer.Option(help="Print a settings file with every setting, its default and its meaning.")
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a settings file, for editors.")]
DemoFolder = Annotated[
    Path, typer.Option(file_okay=False, help="Folder for the warehouse, the broker's records and demo.json.")
]
Seconds = Annotated[float, typer.Option(min=1, help="How long records are produced.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep everything running until Ctrl-C.")]
ServedWarehouse = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        show_default=False,
        help="Folder of the catalog and of its tables; created if missing. Without it: that of the settings file,"
        " or ./lakehouse.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        show_default=False,
        help="Port to listen on, at 127.0.0.1. Without it: the last one that was used, else 8181 or the next free"
        " one. 0: any free port.",
    ),
]
BundleFolder = Annotated[
    Path, typer.Argument(file_okay=False, show_default=False, help="The folder; created if missing.")
]
Kinds = Annotated[
    list[str] | None,
    typer.Argument(show_default=False, help="Kinds of jars, such as spark, catalog or broker. Without any: all."),
]

# -- the settings of a pipeline ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What the command line says about the settings. They are read when the verb asks for them."""

    config: Path | None
    flags: Mapping[str, Any]

    def settings(self, *, allow_code: bool = False) -> "Settings":
        return self.load(allow_code=allow_code).settings

    def load(self, *, allow_code: bool = False) -> "Loaded":
        """A verb that refuses code by itself, or uses nothing that names code, gives `allow_code` as well."""
        from lakehouse_ingest.settings import from_flags, load  # noqa: PLC0415 - help and version need no pydantic
        from lakehouse_ingest.settings.named_code import refuse_code  # noqa: PLC0415 - likewise

        flags = dict(self.flags)
        if topics := flags.pop("--topics", None):
            flags["--topics"] = [each.strip() for each in topics.split(",") if each.strip()]
        loaded = load(self.config, from_flags(flags))
        LOADED.set(loaded)
        refuse_code(loaded.settings, allow_code=allow_code)
        return loaded

    def without_topics(self, warehouse: Path | None = None) -> "Given":
        """For a verb about tables alone. Settings need a topic, so without a file any name does."""
        own = {"--topics": None if self.config else "tables", "--warehouse": warehouse}
        return Given(self.config, {**own, **self.flags})


FLAGS: Mapping[str, Any] = {
    "--topics": Annotated[str | None, typer.Option(help="Comma-separated topics.")],
    "--name": Annotated[str | None, typer.Option(help="Name of the pipeline. Its streams write their marks under it.")],
    "--brokers": Annotated[str | None, typer.Option(help="Comma-separated bootstrap servers.")],
    "--catalog-uri": Annotated[
        str | None, typer.Option(help="Address of the REST catalog. Without it: the embedded one.")
    ],
    "--warehouse": Annotated[Path | None, typer.Option(help="Folder of the embedded catalog and of its tables.")],
    "--namespace": Annotated[str | None, typer.Option(help="Namespace of the tables.")],
    "--table": Annotated[str | None, typer.Option(help="Name of the table. {topic} is replaced by the topic.")],
    "--event-time": Annotated[str | None, typer.Option(help="Field that holds the event time.")],
    "--every": Annotated[str | None, typer.Option(help="Commit interval, such as 5s.")],
    "--start": Annotated[
        str | None,
        typer.Option(help='Where to begin in a new topic: earliest, latest, a time, or {"topic": {"0": 42}}.'),
    ],
    "--seek": Annotated[
        str | None,
        typer.Option(help='Takes precedence over --start: last offsets that need not be read, {"0": 41}.'),
    ],
}
CONNECTION = ("--catalog-uri", "--warehouse", "--namespace")
PIPELINE = ("--topics", "--name", "--brokers", *CONNECTION)

Verb = Callable[..., None]


def pipeline_options(*flags: str) -> Callable[[Verb], Verb]:
    """Gives a verb the option --config and these flags, at the place of its parameter `given`."""
    shared = [_option("config", Config), *(_option(_name(flag), FLAGS[flag]) for flag in flags)]

    def decorated(verb: Verb) -> Verb:
        own = inspect.signature(verb)
        options = [
            option for each in own.parameters.values() for option in (shared if each.name == "given" else [each])
        ]

        @functools.wraps(verb)
        def called(*, config: Path | None, **words: Any) -> None:
            given = Given(config, {flag: words.pop(_name(flag)) for flag in flags})
            verb(given=given, **words)

        # typer reads both, and so does the generated page of the command line.
        called.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in options}
        return called

    return decorated


def _option(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
