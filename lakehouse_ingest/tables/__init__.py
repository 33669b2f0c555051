"""The tables of a pipeline. Only this room sends requests to the catalog."""

from catalog import (
    REWRITTEN_FORMAT,
    Add,
    Column,
    Connection,
    Contract,
    DryRun,
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
    TableSpec,
    TableState,
    Widen,
    arrow_type,
    bare,
    fields_of,
    same_partitions,
)
from lakehouse_ingest.tables.dry_run import ImaginedTables
from lakehouse_ingest.tables.errors import unmade
from lakehouse_ingest.tables.pipeline_tables import PipelineTables
from lakehouse_ingest.tables.position import Known, Position, Registered, newest_generation
from lakehouse_ingest.tables.turns import Turns

# What other rooms may use.
__all__ = [
    "REWRITTEN_FORMAT",
    "Add",
    "Column",
    "Connection",
    "Contract",
    "DryRun",
    "Evolution",
    "FileMissing",
    "Foreseen",
    "HeadFile",
    "ImaginedTables",
    "Known",
    "LiveFile",
    "Partition",
    "Pinned",
    "PipelineTables",
    "Plan",
    "Position",
    "Registered",
    "Relax",
    "Rule",
    "Sort",
    "TableSpec",
    "TableState",
    "Turns",
    "Widen",
    "arrow_type",
    "bare",
    "fields_of",
    "newest_generation",
    "same_partitions",
    "unmade",
]
