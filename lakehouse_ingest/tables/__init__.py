"""The door to the catalog, and the only importer of `catalog`: our place on each table, taken and moved."""

from catalog import Column, Connection, FileMissing, HeadFile, Partition, Pinned, Sort, TableSpec, TableState, bare
from lakehouse_ingest.tables.lake import Lake
from lakehouse_ingest.tables.places import TOPIC, TYPE, Place, Registered, newest_generation
from lakehouse_ingest.tables.publishing import Target

# The values that cross this door.
__all__ = [
    "TOPIC",
    "TYPE",
    "Column",
    "Connection",
    "FileMissing",
    "HeadFile",
    "Lake",
    "Partition",
    "Pinned",
    "Place",
    "Registered",
    "Sort",
    "TableSpec",
    "TableState",
    "Target",
    "bare",
    "newest_generation",
]
