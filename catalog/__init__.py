"""Keep an Iceberg table in step with data: plain values in and out, every change a compare-and-set.

lake = connect(Connection("http://localhost:8181"))
ensure_namespace(lake, "iot")
create_table(lake, TableSpec("iot.sensors", (Column("id", "long"), Column("at", "timestamptz"))))
open_branch(lake, "iot.sensors", "landing_1")
staged = append_rows(lake, "iot.sensors", "landing_1", [{"id": 1}], {"batch": "1"})
publish(lake, "iot.sensors", "landing_1", staged.snapshot, staged.parent)
"""

from catalog.connection import Lake, connect
from catalog.errors import (
    BranchesRefused,
    BranchGone,
    CatalogError,
    Conflict,
    Denied,
    FileMissing,
    FilesDenied,
    FilesUnfit,
    FilesUnreachable,
    NamespaceMissing,
    NotLetIn,
    OutcomeUnknown,
    Refused,
    TableMissing,
    Unreachable,
)
from catalog.evolution import add_columns
from catalog.files import HeadFile, Pinned, pin
from catalog.main_only import Decide, append_onto, fence, restage_onto
from catalog.namespaces import ensure_namespace, has_namespace
from catalog.probing import probe_table, write_and_read
from catalog.publication import align_branch, drop_branches, head, open_branch, publish
from catalog.reading import rows_since
from catalog.registration import create_table, load, names_in, set_properties
from catalog.specs import Column, Connection, Partition, Snapshot, Sort, Staged, TableSpec, TableState
from catalog.staging import append_rows, publish_again
from catalog.typenames import canonical

__all__ = [
    "BranchGone",
    "BranchesRefused",
    "CatalogError",
    "Column",
    "Conflict",
    "Connection",
    "Decide",
    "Denied",
    "FileMissing",
    "FilesDenied",
    "FilesUnfit",
    "FilesUnreachable",
    "HeadFile",
    "Lake",
    "NamespaceMissing",
    "NotLetIn",
    "OutcomeUnknown",
    "Partition",
    "Pinned",
    "Refused",
    "Snapshot",
    "Sort",
    "Staged",
    "TableMissing",
    "TableSpec",
    "TableState",
    "Unreachable",
    "add_columns",
    "align_branch",
    "append_onto",
    "append_rows",
    "canonical",
    "connect",
    "create_table",
    "drop_branches",
    "ensure_namespace",
    "fence",
    "has_namespace",
    "head",
    "load",
    "names_in",
    "open_branch",
    "pin",
    "probe_table",
    "publish",
    "publish_again",
    "restage_onto",
    "rows_since",
    "set_properties",
    "write_and_read",
]
