"""The settings as frozen models, one module for each topic; every value but the topics has a default for a laptop.

Their descriptions are the reference: `lakehouse-ingest settings` prints them, and `make docs` writes them into
`docs/reference/settings.md`, into the JSON Schema and into the example files.
"""

from lakehouse_ingest.settings.models.catalog import CatalogSettings
from lakehouse_ingest.settings.models.pipeline import (
    DeadLetterSettings,
    LedgerSettings,
    RetrySettings,
    Settings,
    SparkSettings,
)
from lakehouse_ingest.settings.models.source import SecuritySettings, SourceSettings
from lakehouse_ingest.settings.models.storage import S3Settings
from lakehouse_ingest.settings.models.stream import StreamSettings
from lakehouse_ingest.settings.models.table import ColumnSettings, Rule, TableSettings
from lakehouse_ingest.settings.models.telemetry import HealthSettings, LogSettings, TelemetrySettings

__all__ = [
    "CatalogSettings",
    "ColumnSettings",
    "DeadLetterSettings",
    "HealthSettings",
    "LedgerSettings",
    "LogSettings",
    "RetrySettings",
    "Rule",
    "S3Settings",
    "SecuritySettings",
    "Settings",
    "SourceSettings",
    "SparkSettings",
    "StreamSettings",
    "TableSettings",
    "TelemetrySettings",
]
