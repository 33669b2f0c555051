"""The settings: frozen models, and the only reader of files, environment and command line.

Command line over environment over file; every value has a default that serves a laptop.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from lakehouse_ingest.errors import SettingsRefused

PREFIX = "LAKEHOUSE_INGEST_"
FILE_VARIABLE = f"{PREFIX}CONFIG"
# Read elsewhere, under the same prefix: the folder of jars for machines without network.
OTHER_VARIABLES = frozenset({FILE_VARIABLE, f"{PREFIX}JARS"})

HIDDEN = "**********"  # as pydantic writes a secret
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def seconds(value: object) -> object:
    """`"5s"`, `"250ms"`, `"10m"`, `"1h"`, or a plain number of seconds."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", value)):
        return float(found[1]) * UNITS[found[2] or "s"]
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise ValueError("should be a duration such as 5s, 250ms, 10m or 1h")


def size(value: object) -> object:
    """`"128MiB"`, or a plain number of bytes."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+)\s*(B|KiB|MiB|GiB)?\s*", value)):
        value = int(found[1]) * SIZES[found[2] or "B"]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("should be a size such as 128MiB or 1GiB")


def word(value: str) -> str:
    # Becomes part of branch names, of snapshot properties and of identifiers in SQL.
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", value):
        raise ValueError("should be up to 64 lower-case letters, digits, - and _")
    return value


def identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value):
        raise ValueError("should be up to 128 letters, digits and _, and not begin with a digit")
    return value


def regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as failure:
        raise ValueError(f"should be a regular expression: {failure}") from None
    return value


def type_from(value: str) -> str:
    if not re.fullmatch(r"key|header:.+|field:[^.]+(\.[^.]+)*", value):
        raise ValueError("should be field:path.to.it, header:name or key")
    return value


def template(value: str) -> str:
    identifier(value.replace("{topic}", "x").replace("{type}", "x"))
    return value


def without_login(value: Any) -> Any:
    return re.sub(r"(?<=://)[^/@\s]+@", f"{HIDDEN}@", value) if isinstance(value, str) else value


def dotted(value: str) -> str:
    return ".".join(identifier(part) for part in value.split("."))


Seconds = Annotated[float, BeforeValidator(seconds)]
Size = Annotated[int, BeforeValidator(size)]
Word = Annotated[str, AfterValidator(word)]
Identifier = Annotated[str, AfterValidator(identifier)]
Dotted = Annotated[str, AfterValidator(dotted)]
Regex = Annotated[str, AfterValidator(regex)]
TypeFrom = Annotated[str, AfterValidator(type_from)]
Template = Annotated[str, AfterValidator(template)]
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
TimeUnit = Literal["auto", "s", "ms", "us", "ns", "iso"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Of options and properties the keys only, of addresses neither user nor password."""
        for key, value in super().__repr_args__():
            yield key, dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else without_login(value)


class CatalogSettings(Model):
    uri: str | None = Field(default=None, description="REST catalog; absent: the embedded one over `path`")
    path: Path = Field(default=Path("lakehouse"), description="folder of the embedded catalog and its tables")
    warehouse: str | None = Field(default=None, description="the catalog's own name for the warehouse")
    namespace: Dotted = Field(default="ingest", description="namespace of the tables, made when absent")
    token: SecretStr | None = Field(default=None, description="bearer token")
    properties: Mapping[str, str] = Field(
        default={}, description="further catalog properties, for Spark and pyiceberg both"
    )


class SourceSettings(Model):
    kind: Literal["kafka"] = "kafka"
    brokers: str = Field(default="localhost:9092", description="bootstrap servers")
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="where a topic begins that no table holds"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    options: Mapping[str, str] = Field(
        default={}, description="further settings of the Kafka clients, spelt alike in Java and librdkafka"
    )


class ColumnSettings(Model):
    name: str = Field(min_length=1)
    type: str
    required: bool = False


class TableSettings(Model):
    topics: tuple[str, ...] = Field(default=(), description="only records of these topics; none: of any")
    types: tuple[str, ...] = Field(default=(), description="only records of these types; none: of any")
    table: Template = Field(
        default="{topic}", description="name of the table; {topic} and {type} stand for those of the record"
    )
    columns: tuple[ColumnSettings, ...] = Field(default=(), description="declared columns; none: taken from the data")
    hints: Mapping[str, str] = Field(default={}, description="types of fields whose columns are taken from the data")
    infer_times: bool = Field(
        default=True, description="text that is a date, or a time with its zone, in all records becomes one"
    )
    max_columns: int = Field(
        default=1_000, gt=0, le=10_000, description="records with a field beyond so many columns become dead letters"
    )
    event_time: str | None = Field(
        default=None,
        description="field that holds the event time; absent: ts_ms if there is one, else the record's timestamp",
    )
    event_time_unit: TimeUnit = Field(default="auto", description="unit of a numeric event time")
    partition_by: tuple[str, ...] = ("day(event_time)",)
    sort_by: tuple[str, ...] = ()
    codec: Codec = "zstd"
    target_file_size: Size = 128 * 2**20
    properties: Mapping[str, str] = Field(
        default={}, description="further Iceberg table properties, set when it is made"
    )


class StreamSettings(Model):
    name: Word | None = Field(
        default=None, description="with several streams each but one needs a name: its identity in the ledger"
    )
    topics: tuple[str, ...] = Field(min_length=1)
    format: Literal["json"] = "json"
    type_from: TypeFrom | None = Field(
        default=None, description="where a record says what it is: field:path.to.it, header:name, or key"
    )
    keep_types: Regex | None = Field(
        default=None, description="regular expression; records of other types are counted as filtered, and not kept"
    )
    max_tables: int = Field(default=100, gt=0, le=10_000, description="tables that this stream may make")
    names: Literal["tell_apart", "refuse"] = Field(
        default="tell_apart", description="what becomes of topics, types or fields whose names meet in a table's name"
    )
    on_error: Literal["log", "raise", "ignore"] = Field(
        default="log", description="a record that can't land: to the dead letters, stop at it, or discard and count it"
    )
    every: Seconds = Field(
        default=5.0, description="land at the latest so long after the last landing; 0s: as fast as it goes"
    )
    idle: Seconds = Field(default=0.0, description="land sooner when nothing new has come for so long; 0s: never")
    max_records: int = Field(
        default=1_000_000, gt=0, description="land as soon as so many wait; never more in one batch"
    )
    tables: tuple[TableSettings, ...] = Field(
        (TableSettings(),), min_length=1, description="tried in order; a record that none takes is a dead letter"
    )

    @model_validator(mode="after")
    def _names_its_types(self) -> Self:
        needs_types = [each.table for each in self.tables if each.types or "{type}" in each.table]
        if (needs_types or self.keep_types) and not self.type_from:
            raise ValueError(
                "should say with `type_from` where a record's type is found, for "
                + (f"the table {needs_types[0]}" if needs_types else "`keep_types`")
            )
        named = [each.table for each in self.tables if "{" not in each.table]
        if twice := next((name for name in named if named.count(name) > 1), None):
            raise ValueError(f"should name the table {twice} once, with all its `topics` and `types`")
        return self


def told_apart(streams: tuple[StreamSettings, ...]) -> tuple[StreamSettings, ...]:
    # The one without a name has the pipeline's: so a second stream changes nothing for the first.
    names = [stream.name for stream in streams]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"should have a name each, and {twice} is there twice")
    if names.count(None) > 1:
        raise ValueError("should have a `name` each, but for one of them")
    return streams


class LedgerSettings(Model):
    keep_snapshots: int = Field(default=100, ge=2, le=10_000, description="snapshots a table keeps at most")
    batch_table: Identifier = Field(default="lakehouse_batches", description="the batch record")
    batch_every: Seconds = Field(default=5.0, description="the batch record is written so often at most")


class DeadLetterSettings(Model):
    table: Identifier = "dead_letters"


class RetrySettings(Model):
    first: Seconds = Field(
        default=1.0, description="first wait when a broker or catalog is away; doubles up to a minute"
    )
    limit: Seconds = Field(default=600.0, description="give up when nothing has landed for so long in spite of trying")


class SparkSettings(Model):
    master: str = "local[*]"
    memory: str = "1g"
    options: Mapping[str, str] = {}


class TelemetrySettings(Model):
    traces: bool = False
    metrics: bool = False
    exporter: Literal["otlp_grpc", "otlp_http", "console"] = "otlp_grpc"
    endpoint: str | None = Field(default=None, description="absent: the standard OTEL_* variables decide")
    headers: Mapping[str, SecretStr] = {}


class LogSettings(Model):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"


class Settings(Model):
    name: Word = Field(description="the pipeline's identity in the ledger; absent: the only topic's name")
    catalog: CatalogSettings = CatalogSettings()
    source: SourceSettings = SourceSettings()
    streams: Annotated[tuple[StreamSettings, ...], AfterValidator(told_apart)] = Field(min_length=1)
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    ledger: LedgerSettings = LedgerSettings()
    retry: RetrySettings = RetrySettings()
    spark: SparkSettings = SparkSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    log: LogSettings = LogSettings()


def load_settings(
    path: Path | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from a file, the environment and `given` (the command line), later ones over earlier ones."""
    if path is None and FILE_VARIABLE in environment:
        path = Path(environment[FILE_VARIABLE])
    merged = _merge(_merge(read_file(path) if path else {}, read_environment(environment)), given or {})
    _name_by_topic(merged)
    try:
        return Settings.model_validate(merged)
    except ValidationError as refusal:
        raise SettingsRefused(_sentence(refusal, merged)) from None


def given(plain: Mapping[str, Any], stream: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The command line as a tree; what was not given is left out. Stream and table stand for the only ones."""
    found: dict[str, Any] = {}
    for dotted_key, value in plain.items():
        if value is not None:
            *parents, leaf = dotted_key.split(".")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
            place[leaf] = value
    of_table = {key: value for key, value in table.items() if value is not None}
    of_stream = {key: value for key, value in stream.items() if value is not None}
    if of_table:
        of_stream["tables"] = [of_table]
    if of_stream:
        found["streams"] = [of_stream]
    return found


def read_file(path: Path) -> dict[str, Any]:
    readers: dict[str, Any] = {".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    if path.suffix not in readers:
        raise SettingsRefused(f"the settings file {path} should end in .toml, .yaml or .yml")
    try:
        found = readers[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise SettingsRefused(f"the settings file {path} can't be read: {failure.strerror}") from None
    except (yaml.YAMLError, ValueError) as failure:
        raise SettingsRefused(f"the settings file {path} is not well formed: {_what_failed(failure)}") from None
    if not isinstance(found, dict | None):
        raise SettingsRefused(f"the settings file {path} should hold keys and values")
    return found or {}


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """`LAKEHOUSE_INGEST_CATALOG__URI` stands for `catalog.uri`; lists and mappings are written as YAML."""
    found: dict[str, Any] = {}
    # Shorter ones first: LAKEHOUSE_INGEST_CATALOG={…} is the ground that LAKEHOUSE_INGEST_CATALOG__URI builds on.
    for variable in sorted(set(environment) - OTHER_VARIABLES):
        if variable.startswith(PREFIX):
            *parents, leaf = variable.removeprefix(PREFIX).lower().split("__")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise SettingsRefused(f"{variable} is set within `{parent}`, which the environment sets to a value")
            place[leaf] = _value(environment[variable])
    return found


def _value(text: str) -> Any:
    # Only what is written as a list or a mapping is read as one: a token of digits stays text.
    if text[:1] in "[{":
        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            return text
    return text


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        match merged.get(key), value:
            case Mapping() as below, Mapping():
                merged[key] = _merge(below, value)
            case [Mapping() as below], [Mapping() as above] if key in ("streams", "tables"):  # the only ones
                merged[key] = [_merge(below, above)]
            case [_, _, *_], [Mapping()] if key in ("streams", "tables"):
                raise SettingsRefused(f"the settings have several `{key}`: what is to change in one stands in the file")
            case _:
                merged[key] = value
    return merged


def _name_by_topic(merged: dict[str, Any]) -> None:
    match merged:
        case {"name": _}:
            return
        case {"streams": [{"topics": [str(topic)]}]}:
            merged["name"] = re.sub(r"[^a-z0-9_-]", "-", topic.lower())[:64]


def _sentence(refusal: ValidationError, merged: Mapping[str, Any]) -> str:
    # A missing name last: it may only be missing because the topics can't be read.
    problem = min(refusal.errors(), key=lambda each: each["loc"] == ("name",) and each["type"] == "missing")
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _known_keys(problem["loc"][:-1])
        near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.5)
        return f"unknown setting `{where}`; " + (
            f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(known))}"
        )
    if problem["type"] == "missing":
        if where == "name" and "streams" in merged:
            return "the setting `name` is missing: with more than one topic the pipeline needs a name of its own"
        if where == "streams":
            return "nothing to ingest: name a topic with --topics, or [[streams]] in a settings file"
        return f"the setting `{where}` is missing"
    shown = _shown(problem["input"]) if not _is_secret(where) else ""
    return f"the setting `{where}` {_expectation(problem['msg'])}{shown}"


def _shown(value: object) -> str:
    # What should be a value and is a list or a mapping, or the other way round, may hold a secret somewhere.
    if isinstance(value, str) and re.search(r"^[\[{]|://", value):
        return ""
    return f", not {str(value)[:60]!r}" if isinstance(value, str | int | float) else ""


def _expectation(message: str) -> str:
    for prefix in ("Value error, ", "Input "):
        message = message.removeprefix(prefix)
    return message[0].lower() + message[1:]


def _is_secret(where: str) -> bool:
    return bool(re.search(r"token|password|secret|credential|headers|properties|options", where))


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Settings
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = [arg for arg in getattr(annotation, "__args__", ()) if hasattr(arg, "model_fields")]
        model = inner[0] if inner else annotation
    return list(model.model_fields)


def _what_failed(failure: Exception) -> str:
    """Without the line itself, which may hold a secret."""
    if isinstance(failure, yaml.MarkedYAMLError) and failure.problem and failure.problem_mark:
        problem = re.sub(r"(?<=[\"'])[^\"'<>]{2,}(?=[\"'])", "…", failure.problem)
        return f"{problem} (at line {failure.problem_mark.line + 1}, column {failure.problem_mark.column + 1})"
    if isinstance(failure, UnicodeDecodeError):
        return f"byte {failure.start} is not UTF-8"
    return " ".join(str(failure).split())[:150]
