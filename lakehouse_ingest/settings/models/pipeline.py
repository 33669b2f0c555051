"""The whole pipeline: what all of its streams share."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from lakehouse_ingest.settings import spark_options
from lakehouse_ingest.settings.field_types import ANY_TOPIC, Identifier, Seconds, Word
from lakehouse_ingest.settings.models.base import SettingsModel
from lakehouse_ingest.settings.models.catalog import CatalogSettings
from lakehouse_ingest.settings.models.source import SourceSettings
from lakehouse_ingest.settings.models.storage import S3Settings
from lakehouse_ingest.settings.models.stream import StreamSettings, told_apart
from lakehouse_ingest.settings.models.telemetry import HealthSettings, LogSettings, TelemetrySettings


class LedgerSettings(SettingsModel):
    """How much of the tables' history is kept, and the batch log."""

    keep_snapshots: int = Field(
        default=100,
        ge=2,
        le=10_000,
        description="Most snapshots that a table keeps, besides those of `keep_for`. Fewer are kept, but at least ten,"
        " if their summaries take more than 1 MiB.",
    )
    keep_for: Seconds = Field(
        default=3600.0,
        description="Snapshots that were current within this time are not expired, so that queries can finish. This"
        " does not hold for the batch log. At most 1,000 snapshots are kept for it, because every commit writes, and"
        " every reader loads, a kilobyte or more for each of them.",
    )
    batch_table: Identifier = Field(default="lakehouse_batches", description="Name of the batch log.")
    batch_every: Seconds = Field(
        default=5.0,
        description="Shortest time between two commits of the batch log. It is committed at once if a batch filtered or"
        " discarded records.",
    )


class DeadLetterSettings(SettingsModel):
    """The dead-letter table."""

    table: Identifier = Field(default="dead_letters", description="Name of the dead-letter table.")


class RetrySettings(SettingsModel):
    """How outages are waited for."""

    first: Seconds = Field(
        gt=0,
        default=1.0,
        description="First wait after an outage of a broker, a catalog or a store. Each further wait is twice as long,"
        " up to a minute.",
    )
    limit: Seconds = Field(
        default=600.0, description="Give up if all attempts within this time have committed nothing."
    )


class SparkSettings(SettingsModel):
    """The Spark session."""

    master: str = Field(
        default="local[*]", description="Spark's master: this machine (local[*]), or the address of a cluster."
    )
    memory: str = Field(
        default="1g",
        description="Heap of the driver's Java process. On one machine each task takes up to 600 MiB beside it.",
    )
    options: Annotated[Mapping[str, str], AfterValidator(spark_options.checked)] = Field(
        default={},
        description="Further settings of Spark, except those that a pipeline relies on. An option that names code of"
        " yours needs --allow-code.",
    )


class Settings(SettingsModel):
    """One pipeline."""

    name: Word = Field(
        examples=["plant-7"],
        description="Name of the pipeline; its streams write their marks under it. Without it: the name of the only"
        " topic. With a new name the pipeline starts over: it begins at `source.start`, and writes every record again.",
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
                f"should name the topics in `source.{setting}`: with a `topic_pattern`, more topics may appear later"
            )
        return self

    @property
    def batch_log(self) -> str:
        """Its table, with its namespace."""
        return f"{self.catalog.namespace}.{self.ledger.batch_table}"

    @property
    def dead_letter_table(self) -> str:
        """Likewise."""
        return f"{self.catalog.namespace}.{self.dead_letters.table}"

    def identity_of(self, stream: StreamSettings) -> str:
        """The ledger name of a stream."""
        return f"{self.name}-{stream.name}" if stream.name else self.name
