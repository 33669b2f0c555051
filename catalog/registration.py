"""Tables: looked up, and made when they are missing."""

from collections.abc import Mapping

from pyiceberg.exceptions import TableAlreadyExistsError

from catalog.attempts import patiently
from catalog.commits import commit
from catalog.commits import properties as updated
from catalog.connection import Lake, identifier_of
from catalog.errors import Conflict, OutcomeUnknown, Refused, TableMissing, Unreachable
from catalog.specs import TableSpec, TableState
from catalog.states import partition_spec_of, schema_of, sort_order_of

# What is needed for deletes by row, and what every engine reads.
_FORMAT_VERSION = "2"


def load(lake: Lake, name: str) -> TableState:
    """Give the table as it is now; TableMissing where there is none."""
    return lake.state(name)


def create_table(lake: Lake, spec: TableSpec) -> TableState:
    """Make the table, or give the one that is there, whatever its shape; many may do so at once."""
    for last in patiently():
        try:
            return load(lake, spec.name)
        except TableMissing:
            pass
        try:
            _create(lake, spec)
        except Unreachable:
            # The request may have been heard, or have met another's: what is there now decides.
            if last:
                raise
    return load(lake, spec.name)


def names_in(lake: Lake, namespace: str) -> list[str]:
    """Give the names of the tables in a namespace."""
    with lake.calling(f"listing the tables of {namespace}"):
        return [".".join(found) for found in lake.pyiceberg.list_tables(tuple(namespace.split(".")))]


def set_properties(lake: Lake, name: str, properties: Mapping[str, str]) -> TableState:
    """Set these properties of a table, and leave the others as they are."""
    for last in patiently():
        table = lake.table(name)
        try:
            return commit(lake, table, "setting properties", (), updated(properties))
        except (Conflict, OutcomeUnknown):
            # To set them twice is to set them once.
            if last:
                raise
    raise AssertionError


def _create(lake: Lake, spec: TableSpec) -> None:
    identifier = identifier_of(spec.name)
    if not spec.columns:
        raise Refused(f"creating table {spec.name}: it has no columns")
    with lake.calling(f"creating table {spec.name}"):
        schema = schema_of(spec)
        try:
            lake.pyiceberg.create_table(
                identifier,
                schema,
                partition_spec=partition_spec_of(spec, schema),
                sort_order=sort_order_of(spec, schema),
                properties={"format-version": _FORMAT_VERSION, **spec.properties},
            )
        except TableAlreadyExistsError:
            return
