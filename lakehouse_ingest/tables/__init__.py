"""The door to the catalog, and the only importer of `catalog`: our place on each table, taken and moved."""

from catalog import (
    Column,
    Connection,
    FileMissing,
    Foreseen,
    HeadFile,
    LiveFile,
    Partition,
    Pinned,
    Sort,
    Stage,
    TableSpec,
    TableState,
    bare,
    same_partitions,
)
from lakehouse_ingest.tables.lake import Lake
from lakehouse_ingest.tables.places import REGISTERED, TOPIC, TYPE, Place, Registered, newest_generation
from lakehouse_ingest.tables.publishing import Target
from lakehouse_ingest.tables.rehearsed import RehearsedLake

# The values that cross this door.
__all__ = [
    "REGISTERED",
    "TOPIC",
    "TYPE",
    "Column",
    "Connection",
    "FileMissing",
    "Foreseen",
    "HeadFile",
    "Lake",
    "LiveFile",
    "Partition",
    "Pinned",
    "Place",
    "Registered",
    "RehearsedLake",
    "Sort",
    "Stage",
    "TableSpec",
    "TableState",
    "Target",
    "bare",
    "newest_generation",
    "same_partitions",
]
