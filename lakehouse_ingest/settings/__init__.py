"""The settings: what there is (`models`), how a value is written (`values`), where it comes from (`reading`)."""

from lakehouse_ingest.settings.models import (
    CatalogSettings,
    ColumnSettings,
    HealthSettings,
    LogSettings,
    S3Settings,
    SecuritySettings,
    Settings,
    SourceSettings,
    SparkSettings,
    StreamSettings,
    TableSettings,
    TelemetrySettings,
)
from lakehouse_ingest.settings.reading import Layer, Loaded, foreign, from_flags, load, load_settings
from lakehouse_ingest.settings.values import ANY_TOPIC, Positions, Start

__all__ = [
    "ANY_TOPIC",
    "CatalogSettings",
    "ColumnSettings",
    "HealthSettings",
    "Layer",
    "Loaded",
    "LogSettings",
    "Positions",
    "S3Settings",
    "SecuritySettings",
    "Settings",
    "SourceSettings",
    "SparkSettings",
    "Start",
    "StreamSettings",
    "TableSettings",
    "TelemetrySettings",
    "foreign",
    "from_flags",
    "load",
    "load_settings",
]
