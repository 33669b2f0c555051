"""Keep an Iceberg table in step with data: plain values in and out, every change a compare-and-set.

client = connect(Connection("http://localhost:8181"))
ensure_namespace(client, "iot")
create_table(client, TableSpec("iot.sensors", (Column("id", "long"), Column("at", "timestamptz"))))
today = columns_of(pyarrow.schema({"id": pyarrow.int64(), "site": pyarrow.string()}))
found = plan(load(client, "iot.sensors"), TableSpec("iot.sensors", today))
apply(client, "iot.sensors", found)     # + site string; found.refusals has what the table will not take
state = open_branch(client, "iot.sensors", "writer_1")  # fences older writers once their branches are dropped
ours = Expected(state.uuid, FencePosition("writer_1", state.refs["writer_1"]))
land_rows(client, "iot.sensors", [{"id": 1}], ours, lambda state: {"batch": "1"}, Attempts())
"""

from catalog.abilities import Abilities, probe, probe_on
from catalog.arrow import arrow_type, columns_of
from catalog.changes import Add, Change, Describe, Evolution, Fate, FieldVerdict, Fill, Relax, Repartition, Widen
from catalog.connection import CatalogClient, connect
from catalog.contracts import FOLLOW, Contract, Rule
from catalog.data_files import DataFileReceipt, FileNames, TableFiles, table_files
from catalog.direct_commits import Decide, append_onto, fence
from catalog.dry_run import DryRun, Foreseen, rehearse
from catalog.errors import (
    BranchesRefused,
    BranchExists,
    BranchGone,
    CatalogError,
    ClocksDiffer,
    CodeRefused,
    Conflict,
    Denied,
    FenceMoved,
    FileMissing,
    FilesDenied,
    FilesUnfit,
    FilesUnreachable,
    FilesUnwritable,
    FormatUnwritable,
    LayoutMoved,
    MetadataMissing,
    NamespaceMissing,
    NamespaceRefused,
    NotLetIn,
    OutcomeUnknown,
    RequestRefused,
    TableMissing,
    TableReplaced,
    Unreachable,
)
from catalog.evolution import add_columns, apply
from catalog.fences import Check, Expected, FencePosition, anybody
from catalog.file_counter import FileCounter
from catalog.file_fit import fitting_layout
from catalog.file_writer import FileWriter
from catalog.landing import (
    Attempts,
    FileLayout,
    LandingTry,
    drop_branches,
    land,
    land_rows,
    move_fence_up,
    open_branch,
    orphans_of,
)
from catalog.listing import LiveFile, live_files
from catalog.namespaces import ensure_namespace, has_namespace, namespace_properties
from catalog.partitions import same_partitions
from catalog.planning import Plan, evolved, plan
from catalog.probes import probe_table, write_and_read
from catalog.registration import create_table, load, load_for_engines, names_in, set_properties
from catalog.retries import retrying
from catalog.rewriting import REWRITTEN_FORMAT, RowChange, rewrite_rows, rows_with
from catalog.specs import Column, Connection, Partition, Snapshot, Sort, TableSpec, TableState
from catalog.table_inspection import Inspection, inspect
from catalog.table_reader import HeadFile, Pinned, pin, rows_since
from catalog.typenames import bare, canonical, fields_of, parse_type

__all__ = [
    "FOLLOW",
    "REWRITTEN_FORMAT",
    "Abilities",
    "Add",
    "Attempts",
    "BranchExists",
    "BranchGone",
    "BranchesRefused",
    "CatalogClient",
    "CatalogError",
    "Change",
    "Check",
    "ClocksDiffer",
    "CodeRefused",
    "Column",
    "Conflict",
    "Connection",
    "Contract",
    "DataFileReceipt",
    "Decide",
    "Denied",
    "Describe",
    "DryRun",
    "Evolution",
    "Expected",
    "Fate",
    "FenceMoved",
    "FencePosition",
    "FieldVerdict",
    "FileCounter",
    "FileLayout",
    "FileMissing",
    "FileNames",
    "FileWriter",
    "FilesDenied",
    "FilesUnfit",
    "FilesUnreachable",
    "FilesUnwritable",
    "Fill",
    "Foreseen",
    "FormatUnwritable",
    "HeadFile",
    "Inspection",
    "LandingTry",
    "LayoutMoved",
    "LiveFile",
    "MetadataMissing",
    "NamespaceMissing",
    "NamespaceRefused",
    "NotLetIn",
    "OutcomeUnknown",
    "Partition",
    "Pinned",
    "Plan",
    "Relax",
    "Repartition",
    "RequestRefused",
    "RowChange",
    "Rule",
    "Snapshot",
    "Sort",
    "TableFiles",
    "TableMissing",
    "TableReplaced",
    "TableSpec",
    "TableState",
    "Unreachable",
    "Widen",
    "add_columns",
    "anybody",
    "append_onto",
    "apply",
    "arrow_type",
    "bare",
    "canonical",
    "columns_of",
    "connect",
    "create_table",
    "drop_branches",
    "ensure_namespace",
    "evolved",
    "fence",
    "fields_of",
    "fitting_layout",
    "has_namespace",
    "inspect",
    "land",
    "land_rows",
    "live_files",
    "load",
    "load_for_engines",
    "move_fence_up",
    "names_in",
    "namespace_properties",
    "open_branch",
    "orphans_of",
    "parse_type",
    "pin",
    "plan",
    "probe",
    "probe_on",
    "probe_table",
    "rehearse",
    "retrying",
    "rewrite_rows",
    "rows_since",
    "rows_with",
    "same_partitions",
    "set_properties",
    "table_files",
    "write_and_read",
]
