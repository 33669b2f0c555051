"""The settings: what there is (`models`), how a value is written (`field_types`), where it comes from (`layers`)."""

from lakehouse_ingest.settings.field_types import ANY_TOPIC, Positions, Start
from lakehouse_ingest.settings.layers import Layer, Loaded, foreign, from_flags, load, load_settings
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
