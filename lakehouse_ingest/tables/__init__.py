"""The door to the catalog, and the only importer of `catalog`: our place on each table, taken and moved."""

from catalog import (
    Add,
    Column,
    Connection,
    Contract,
    Evolution,
    FileMissing,
    HeadFile,
    Partition,
    Pinned,
    Plan,
    Relax,
    Rule,
    Sort,
    TableSpec,
    TableState,
    Widen,
    arrow_type,
    bare,
    fields_of,
)
from lakehouse_ingest.tables.lake import FOLLOW, Lake
from lakehouse_ingest.tables.places import TOPIC, TYPE, Place, Registered, newest_generation
from lakehouse_ingest.tables.publishing import Target

# The values that cross this door.
__all__ = [
    "FOLLOW",
    "TOPIC",
    "TYPE",
    "Add",
    "Column",
    "Connection",
    "Contract",
    "Evolution",
    "FileMissing",
    "HeadFile",
    "Lake",
    "Partition",
    "Pinned",
    "Place",
    "Plan",
    "Registered",
    "Relax",
    "Rule",
    "Sort",
    "TableSpec",
    "TableState",
    "Target",
    "Widen",
    "arrow_type",
    "bare",
    "fields_of",
    "newest_generation",
]
