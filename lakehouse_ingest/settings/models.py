"""The settings: frozen models; every value but the topics has a default that serves a laptop.

Their descriptions are the reference: `lakehouse-ingest settings` prints them.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from lakehouse_ingest.settings import spark_options
from lakehouse_ingest.settings.values import (
    ANY_TOPIC,
    HIDDEN,
    ChosenPartitions,
    Codec,
    Dotted,
    HostName,
    Identifier,
    Pem,
    Regex,
    Seconds,
    Secret,
    Seek,
    Size,
    Start,
    Template,
    TimeUnit,
    TypeFrom,
    Word,
    without_login,
)


def _folder(value: object) -> object:
    if "://" in str(value):
        raise ValueError("should be a folder of this machine; `catalog.warehouse` may be an s3:// place for the tables")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper().replace("_", "-") if isinstance(value, str) else value


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Of options and properties the keys only, of addresses neither user nor password."""
        for key, value in super().__repr_args__():
            yield key, dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else without_login(value)


class CatalogSettings(Model):
    uri: str | None = Field(
        examples=["http://localhost:8181"],
        default=None,
        description="REST catalog; absent: the embedded one over `path`",
    )
    path: Annotated[Path, BeforeValidator(_folder)] = Field(
        default=Path("lakehouse"), description="folder of the embedded catalog and of its tables"
    )
    warehouse: str | None = Field(
        examples=["prod"],
        default=None,
        description="the catalog's own name for the warehouse; of the embedded one an s3:// place for its tables",
    )
    namespace: Dotted = Field(default="ingest", description="namespace of the tables")
    create: bool = Field(
        default=True,
        description="make the namespace and tables that are not there; off: a start without one of them is refused, and"
        " records whose type has no table are dead letters",
    )
    token: Secret | None = Field(examples=["…"], default=None, description="bearer token")
    credential: Secret | None = Field(
        examples=["client-id:secret"], default=None, description="OAuth2 client credentials, as client-id:secret"
    )
    oauth2_server: str | None = Field(
        examples=["https://login.example.com/oauth/tokens"],
        default=None,
        description="where tokens are to be had; absent: the catalog's own endpoint",
    )
    scope: str | None = Field(examples=["catalog"], default=None, description="scope of the tokens; absent: catalog")
    headers: Mapping[str, Secret] = Field(default={}, description="further headers of every request")
    sign_for: str | None = Field(
        examples=["s3tables"],
        default=None,
        description="sign requests by SigV4 for this AWS service, glue or s3tables, with the keys of `s3`; needs boto3",
    )
    sign_region: str | None = Field(
        examples=["eu-central-1"], default=None, description="region of those signatures; absent: that of `s3`"
    )
    vended_credentials: bool = Field(
        default=False, description="ask the catalog for credentials of each table's files, and use those"
    )
    publish: Literal["branch", "direct"] = Field(
        default="branch",
        description="how rows that wait to be seen are kept: on a branch of the table, or without one, where the"
        " catalog allows none: directly, at the cost of a small commit a table and start",
    )
    timeout: Seconds = Field(default=60.0, gt=0, description="a request without an answer for so long has failed")
    properties: Mapping[str, str] = Field(
        default={},
        description="further catalog properties, for Spark and pyiceberg both; a class of yours needs --allow-code",
    )


class S3Settings(Model):
    """Where a table's files are on S3; what is absent is asked of AWS's own chain (variables, profile, role)."""

    endpoint: str | None = Field(
        examples=["http://localhost:9000"],
        default=None,
        description="address of a store that is not AWS, such as http://minio:9000",
    )
    region: str | None = Field(
        examples=["eu-central-1"],
        default=None,
        description="region of the bucket; absent: us-east-1 with an `endpoint`, else AWS's own chain",
    )
    path_style: bool = Field(
        default=False, description="bucket in the path, not in the host's name: most stores that are not AWS"
    )
    access_key: Secret | None = Field(
        examples=["…"], default=None, description="with `secret_key`; absent: AWS's own chain"
    )
    secret_key: Secret | None = Field(examples=["…"], default=None, description="with `access_key`")
    session_token: Secret | None = Field(examples=["…"], default=None, description="of temporary keys")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("should have both `access_key` and `secret_key`, or neither")
        return self


class SecuritySettings(Model):
    """How the brokers let us in: one place for the Java client and the Python one."""

    protocol: Annotated[Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], BeforeValidator(_lower)] | None = (
        Field(
            examples=["sasl_ssl"],
            default=None,
            description="absent: sasl_ssl with `mechanism`, `username` or `token_url`; ssl with `ca` or `certificate`",
        )
    )
    mechanism: (
        Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(_upper)] | None
    ) = Field(
        examples=["SCRAM-SHA-512"],
        default=None,
        description="absent: PLAIN with a `username`, OAUTHBEARER with a `token_url`",
    )
    username: str | None = Field(examples=["ingest"], default=None, description="user of PLAIN and SCRAM")
    password: Secret | None = Field(examples=["…"], default=None, description="and the password")
    ca: Pem | None = Field(
        examples=["ca.pem"],
        default=None,
        description="certificates that the brokers' are signed with, a file or PEM text; absent: the system's",
    )
    certificate: Pem | None = Field(
        examples=["client.pem"], default=None, description="the client's own, a file or PEM text"
    )
    key: Pem | None = Field(
        examples=["client.key"],
        default=None,
        description="its private key in PKCS 8, encrypted or not, a file or PEM text",
    )
    key_password: Secret | None = Field(examples=["…"], default=None, description="of that key, when it is encrypted")
    verify_hostname: bool = Field(default=True, description="whether a broker's certificate must name its host")
    token_url: str | None = Field(
        examples=["https://login.example.com/oauth/tokens"],
        default=None,
        description="of OAUTHBEARER: where tokens are to be had",
    )
    client_id: str | None = Field(examples=["ingest"], default=None, description="of OAUTHBEARER: who we are")
    client_secret: Secret | None = Field(
        examples=["…"], default=None, description="of OAUTHBEARER: and how that is known"
    )
    scope: str | None = Field(examples=["kafka"], default=None, description="of OAUTHBEARER: what the tokens are for")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        pairs = (("username", "password"), ("certificate", "key"), ("client_id", "client_secret"))
        for one, other in pairs:
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"should have both `{one}` and `{other}`, or neither")
        if self.key_password and not self.key:
            raise ValueError("should have a `key` for the `key_password`")
        if (self.client_id or self.token_url) and self.sasl != "OAUTHBEARER" and self.mechanism is None:
            raise ValueError("should have the mechanism OAUTHBEARER and a `token_url` for `client_id`")
        if (self.ca or self.certificate) and not self.over.endswith("ssl"):
            raise ValueError(f"should have the protocol ssl or sasl_ssl for `ca` and `certificate`, not {self.over}")
        if self.sasl in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not self.username:
            raise ValueError(f"should have `username` and `password` for {self.sasl}")
        if self.sasl == "OAUTHBEARER" and not (self.token_url and self.client_id):
            raise ValueError("should have `token_url`, `client_id` and `client_secret` for OAUTHBEARER")
        if self.sasl and not self.over.startswith("sasl"):
            raise ValueError(f"should have the protocol sasl_ssl or sasl_plaintext for {self.sasl}, not {self.over}")
        if self.over.startswith("sasl") and not self.sasl:
            raise ValueError(f"should have a `mechanism` for {self.over}")
        return self

    @property
    def sasl(self) -> str | None:
        """The mechanism."""
        usual = "PLAIN" if self.username else "OAUTHBEARER" if self.token_url else None
        return self.mechanism or usual

    @property
    def over(self) -> str:
        """The protocol."""
        usual = "ssl" if self.ca or self.certificate else "plaintext"
        return self.protocol or ("sasl_ssl" if self.sasl else usual)


class SourceSettings(Model):
    kind: str = Field(
        default="kafka",
        min_length=1,
        description="where the events are: kafka, or an entry point of lakehouse_ingest.sources",
    )
    brokers: str = Field(default="localhost:9092", min_length=1, description="bootstrap servers")
    security: SecuritySettings = SecuritySettings()
    start: Start = Field(
        default="earliest",
        description="where a topic begins that no table holds: earliest, latest, a time with its zone, or the offsets"
        " { topic = { partition = first } }; latest is for topics that are there when the pipeline first starts, and a"
        " transaction that is open then is still read",
    )
    seek: Seek = Field(
        default={},
        description="before `start`, and like it for what no table holds: offsets { topic = { partition = last } }"
        " of the last records that need not be read",
    )
    partitions: ChosenPartitions = Field(
        default={},
        description="read these partitions of a topic alone, { topic = [0, 1] }, so that other pipelines may read the"
        " others into the same table; such as are added to the topic later are then not read",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="whether records of open and aborted transactions are left out"
    )
    options: Mapping[str, str] = Field(
        default={},
        description="further settings of the Kafka clients, in the spelling of Java, librdkafka or kafka-python;"
        " of another kind all of its settings",
    )


class ColumnSettings(Model):
    name: str = Field(min_length=1, description="field and column")
    type: str = Field(description="Iceberg's words or Arrow's: long, UInt16, decimal(10,2), timestamptz, list<string>")
    required: bool = Field(default=False, description="a record without it becomes a dead letter")


Rule = Literal["evolve", "widen", "freeze", "refuse"]


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
    contract: Rule | None = Field(
        examples=["freeze"],
        default=None,
        description="what data may do: evolve (new fields become columns, types widen), widen (types only),"
        " freeze (nothing), refuse (records that want more are dead letters); what widen and freeze leave over is kept"
        " in _rescued; absent: evolve, and with declared `columns` other fields are not kept",
    )
    contracts: Mapping[str, Rule] = Field(
        default={}, description="likewise for single fields and all within, by path: { place = freeze }"
    )
    rescue: bool = Field(
        default=False,
        description="under evolve, too, what has no place in the columns is kept in _rescued, instead of making its"
        " record a dead letter",
    )
    max_columns: int = Field(
        default=1_000,
        gt=0,
        le=10_000,
        description="fields beyond so many columns get none: they are rescued, or their records are dead letters",
    )
    max_new: int | None = Field(
        examples=[100], default=None, gt=0, description="likewise beyond so many new columns in one batch"
    )
    max_depth: int = Field(
        default=21, gt=0, le=21, description="objects and lists within so many others keep their JSON text"
    )
    event_time: str | None = Field(
        examples=["ts_ms"],
        default=None,
        description="field that holds the event time; absent: ts_ms if there is one, else the record's timestamp",
    )
    event_time_unit: TimeUnit = Field(default="auto", description="unit of a numeric event time")
    partition_by: tuple[str, ...] = Field(
        default=("day(event_time)",),
        description="column, year(column), month(…), day(…), hour(…), bucket(16, column), truncate(4, column) or"
        " void(column); year, month, day, hour one after the other are those of the event time: one hidden partition",
    )
    partition_changes: Literal["refuse", "evolve"] = Field(
        default="refuse",
        description="of a table that is partitioned in another way; evolve: new files follow `partition_by`, those that"
        " are there stay as they are",
    )
    hive_directories: bool = Field(
        default=False,
        description="year, month, day, hour in `partition_by` become columns of text, so that files lie in"
        " year=2024/month=01/day=15; readers skip files by these columns only, no longer by the event time",
    )
    sort_by: tuple[str, ...] = Field(default=(), description="sort order of a file's rows: column, or column desc")
    codec: Codec = Field(default="zstd", description="compression of the Parquet files")
    target_file_size: Size = Field(default=128 * 2**20, description="files are at most about so large")
    properties: Mapping[str, str] = Field(
        default={}, description="further Iceberg table properties, set when it is made"
    )

    @model_validator(mode="after")
    def _declared_columns_do_not_follow(self) -> Self:
        if self.columns and self.contract in ("evolve", "widen"):
            raise ValueError(
                f"should have no contract {self.contract} with declared `columns`, only freeze or refuse; `hints` give"
                " types to columns that follow the data"
            )
        if self.columns and self.contract is None and (self.contracts or self.rescue):
            raise ValueError(
                "should say with `contract`, freeze or refuse, what becomes of other fields than the `columns`"
            )
        return self

    @field_validator("properties")
    @classmethod
    def _can_be_begun(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        if properties.get("format-version", "2") not in ("1", "2"):
            raise ValueError(
                "should have format-version 1 or 2: a table of a later one is fed where another engine has made it,"
                " with a first row"
            )
        return properties

    @property
    def rules(self) -> set[Rule]:
        """All that are in force anywhere in the table."""
        return {self.contract or "evolve", *self.contracts.values()}

    def keeps(self, rule: Rule) -> bool:
        """Whether what has no place in the columns is rescued."""
        return rule in ("widen", "freeze") or (rule == "evolve" and self.rescue)

    @property
    def rescues(self) -> bool:
        """Whether the table has a rescue column."""
        return any(map(self.keeps, self.rules))


class StreamSettings(Model):
    name: Word | None = Field(
        examples=["raw"],
        default=None,
        description="with several streams each but one needs a name: its identity in the ledger",
    )
    topics: tuple[str, ...] = Field(examples=[["sensors"]], default=(), description="the topics, by name")
    topic_pattern: Regex | None = Field(
        examples=["sensors-.*"],
        default=None,
        description="instead of `topics`: a regular expression; topics that appear later are taken in",
    )
    format: str = Field(
        default="json",
        min_length=1,
        description="what a record's value is: json, or an entry point of lakehouse_ingest.formats",
    )
    type_from: TypeFrom | None = Field(
        examples=["field:type"],
        default=None,
        description="where a record says what it is: field:path.to.it, header:name, or key; up to 255 characters",
    )
    keep_types: Regex | None = Field(
        examples=["^(order|payment)$"],
        default=None,
        description="regular expression, found anywhere in the type; records of other types are counted as filtered,"
        " and not kept",
    )
    transform: str | None = Field(
        examples=["celsius"],
        default=None,
        description="a function of yours, frame to frame, between decode and shape: the name of an entry point of"
        " lakehouse_ingest.transforms, or module:function where code from settings is allowed",
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
        default=1_000_000,
        gt=0,
        description="land as soon as so many wait; never more in one batch. After a start that ended before a batch had"
        " landed the first one is a quarter of that one, and each landing lets the next be four times as large",
    )
    tables: tuple[TableSettings, ...] = Field(
        (TableSettings(),), min_length=1, description="tried in order; a record that none takes is a dead letter"
    )

    @property
    def known_as(self) -> str:
        """By people; not its name in the ledger."""
        return self.name or self.topic_pattern or ",".join(self.topics)

    @model_validator(mode="after")
    def _says_which_topics(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("should have either `topics` or a `topic_pattern`")
        return self

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

    @model_validator(mode="after")
    def _leads_to_a_table_by_one_entry(self) -> Self:
        """Two entries may share a template as long as what it is filled with tells their tables apart."""
        for earlier, later in combinations(self.tables, 2):
            if earlier.table.casefold() == later.table.casefold() and _meet(earlier, later):
                raise ValueError(
                    f"should lead to a table of {later.table} by one entry, with all its `topics` and `types`; two of"
                    " them take records for the same one"
                )
        return self


def _meet(earlier: TableSettings, later: TableSettings) -> bool:
    """Whether records that the earlier entry leaves to the later one may go to a table of the earlier one's."""
    # Where an entry names none it takes all.
    taken = {"{topic}": (earlier.topics, later.topics), "{type}": (earlier.types, later.types)}
    named = [both for each, both in taken.items() if each in later.table]
    others = [both for each, both in taken.items() if each not in later.table]
    alike = all(not first or not second or {*first} & {*second} for first, second in named)
    left = any(first and not (second and {*second} <= {*first}) for first, second in others)
    return alike and left


def told_apart(streams: tuple[StreamSettings, ...]) -> tuple[StreamSettings, ...]:
    # The one without a name has the pipeline's: so a second stream changes nothing for the first.
    names = [stream.name for stream in streams]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"should have a name each, and {twice} is there twice")
    if names.count(None) > 1:
        raise ValueError("should have a `name` each, but for one of them")
    known = [stream.known_as for stream in streams]
    if twice := next((name for name in known if known.count(name) > 1), ""):
        raise ValueError(f"should be told apart, and {twice} is the `name` of one and the topic of another")
    return streams


class LedgerSettings(Model):
    keep_snapshots: int = Field(
        default=100,
        ge=2,
        le=10_000,
        description="snapshots a table keeps at most, beside those of `keep_for`; fewer, but ten, where their summaries"
        " are more than 1 MiB",
    )
    keep_for: Seconds = Field(
        default=3600.0,
        description="what a query may have begun to read within this time is not expired, in tables but the batch"
        " record; up to 1,000 snapshots, for each adds a kilobyte or more to what every commit writes and every"
        " reader loads",
    )
    batch_table: Identifier = Field(default="lakehouse_batches", description="the batch record")
    batch_every: Seconds = Field(
        default=5.0,
        description="the batch record is written so often at most, but at once where records were filtered or"
        " discarded",
    )


class DeadLetterSettings(Model):
    table: Identifier = Field(default="dead_letters", description="table of the records that can't land")


class RetrySettings(Model):
    first: Seconds = Field(
        gt=0, default=1.0, description="first wait when a broker or catalog is away; doubles up to a minute"
    )
    limit: Seconds = Field(default=600.0, description="give up when nothing has landed for so long in spite of trying")


class SparkSettings(Model):
    master: str = Field(default="local[*]", description="this machine, or that of a cluster")
    memory: str = Field(default="1g", description="heap of the driver, which on one machine does all the work")
    options: Annotated[Mapping[str, str], AfterValidator(spark_options.checked)] = Field(
        default={},
        description="further settings of Spark, but for those that a pipeline relies on; what names code of yours needs"
        " --allow-code",
    )


class TelemetrySettings(Model):
    traces: bool = Field(default=False, description="a trace for each batch")
    metrics: bool = Field(default=False, description="counters and durations")
    exporter: str = Field(
        default="otlp",
        description="where they go: otlp_grpc, otlp_http, otlp (that of them which OTEL_EXPORTER_OTLP_PROTOCOL names),"
        " console, prometheus, statsd, none, or an entry point of telemetry.exporters; prometheus, statsd and none"
        " carry metrics only, and none leaves them to `health`",
    )
    endpoint: str | None = Field(
        examples=["http://localhost:4317"],
        default=None,
        description="absent: the standard OTEL_* variables decide; of statsd udp://localhost:8125, of prometheus where"
        " to listen, http://localhost:9464",
    )
    headers: Mapping[str, Secret] = Field(default={}, description="of every request to the collector")


class HealthSettings(Model):
    port: int | None = Field(
        examples=[8080],
        default=None,
        ge=0,
        le=65_535,
        description="where a page to look at, /live, /ready and, with `telemetry.metrics`, /metrics are served; absent:"
        " nowhere; 0: at any port that is free, which the log names",
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen at; 0.0.0.0: for whoever reaches this machine, without any login",
    )
    hosts: tuple[HostName, ...] = Field(
        default=(),
        description="further names that the port may be asked by, such as those of a proxy before it; without any, at"
        " 127.0.0.1 only localhost and addresses, elsewhere every name",
    )
    fresh: Seconds = Field(
        gt=0, default=120.0, description="not ready when a stream has shown no progress for so long; an idle one does"
    )
    stuck: Seconds = Field(
        gt=0, default=900.0, description="not alive when a stream that should work has shown none for so long"
    )


class LogSettings(Model):
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is said")
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="auto: text on a terminal, JSON elsewhere"
    )


class Settings(Model):
    name: Word = Field(
        examples=["plant-7"], description="the pipeline's identity in the ledger; absent: the only topic's name"
    )
    catalog: CatalogSettings = CatalogSettings()
    s3: S3Settings = S3Settings()
    source: SourceSettings = SourceSettings()
    streams: Annotated[tuple[StreamSettings, ...], AfterValidator(told_apart)] = Field(min_length=1)
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    ledger: LedgerSettings = LedgerSettings()
    retry: RetrySettings = RetrySettings()
    spark: SparkSettings = SparkSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _places_are_of_topics_that_are_known(self) -> Self:
        named = {"start": self.source.start, "seek": self.source.seek}
        pattern = any(stream.topic_pattern for stream in self.streams)
        if pattern and (
            setting := next((key for key, at in named.items() if isinstance(at, Mapping) and ANY_TOPIC in at), "")
        ):
            raise ValueError(
                f"should name the topics in `source.{setting}`: with a `topic_pattern` others may come later"
            )
        return self

    def identity_of(self, stream: StreamSettings) -> str:
        """A stream's name in the ledger."""
        return f"{self.name}-{stream.name}" if stream.name else self.name
