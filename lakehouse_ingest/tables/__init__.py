"""The door to the catalog, and the only importer of `catalog`: our place on each table, taken and moved."""

from catalog import (
    WRITTEN_FORMAT,
    Add,
    Column,
    Connection,
    Contract,
    Evolution,
    FileMissing,
    Foreseen,
    HeadFile,
    LiveFile,
    Partition,
    Pinned,
    Plan,
    Relax,
    Rule,
    Sort,
    Stage,
    TableSpec,
    TableState,
    Widen,
    arrow_type,
    bare,
    fields_of,
    same_partitions,
)
from lakehouse_ingest.tables.changes import FOLLOW
from lakehouse_ingest.tables.dry_run import RehearsedLake
from lakehouse_ingest.tables.errors import unmade
from lakehouse_ingest.tables.lake import Lake
from lakehouse_ingest.tables.position import Known, Place, Registered, newest_generation
from lakehouse_ingest.tables.publishing import Target
from lakehouse_ingest.tables.turns import Turns

# The values that cross this door.
__all__ = [
    "FOLLOW",
    "WRITTEN_FORMAT",
    "Add",
    "Column",
    "Connection",
    "Contract",
    "Evolution",
    "FileMissing",
    "Foreseen",
    "HeadFile",
    "Known",
    "Lake",
    "LiveFile",
    "Partition",
    "Pinned",
    "Place",
    "Plan",
    "Registered",
    "RehearsedLake",
    "Relax",
    "Rule",
    "Sort",
    "Stage",
    "TableSpec",
    "TableState",
    "Target",
    "Turns",
    "Widen",
    "arrow_type",
    "bare",
    "fields_of",
    "newest_generation",
    "same_partitions",
    "unmade",
]
