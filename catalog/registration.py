"""Tables: looked up, and created if they are missing."""

from collections.abc import Iterator, Mapping

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, StructType

from catalog.column_defaults import misfit
from catalog.commits import ProposedCommit, commit_loop, properties_update
from catalog.connection import CatalogClient, identifier_of
from catalog.conversions import partition_spec_of, schema_of, sort_order_of
from catalog.errors import Denied, NamespaceMissing, RequestRefused, TableMissing, Unreachable
from catalog.fences import Check, Expected, anybody, fenced, tries_of
from catalog.fields import columns_in, is_leaf, parts_of, struct_of
from catalog.partitions import misfits, term_of, unfit
from catalog.retries import LookAgain, look_until_settled
from catalog.specs import TableSpec, TableState

_FORMAT = "format-version"
# The first with deletes of single rows, and every engine reads it.
_FORMAT_VERSION = "2"
A_VIEW = "is a view, and a table is needed; name another one"


def load(client: CatalogClient, name: str) -> TableState:
    """Give the table as it is now; raises TableMissing if there is none."""
    return client.state(name)


def load_for_engines(client: CatalogClient, name: str) -> TableState:
    """Give the table before an engine opens it; raises CodeRefused if the engine would load code that it names."""
    return client.state_for_engines(name)


def create_table(client: CatalogClient, spec: TableSpec, *, create: bool = True) -> TableState:
    """Create the table, or give the existing one, whatever its shape; several writers may do so at once.

    pyiceberg gives a new table no defaults: like those of an existing table, they are for the next plan.
    Raises RequestRefused for defaults that no plan could give it, for a table that can't be as it is declared,
    and for the name of a view. Without `create` a missing table raises TableMissing.
    """

    def look() -> TableState:
        try:
            return load(client, spec.name)
        except TableMissing:
            if not create:
                said = f"there is no table {spec.name}, and it may not be made: make it, or allow it"
                raise TableMissing(said) from None
        try:
            _create(client, spec)
        except Unreachable as silence:
            # The request may have been heard, or another writer's may have come first: the next look tells.
            raise LookAgain(silence) from silence
        try:
            return load(client, spec.name)
        except TableMissing as missing:
            # A replica of the catalog may not have heard of it yet.
            raise LookAgain(missing) from missing

    return look_until_settled(look)


def names_in(client: CatalogClient, namespace: str) -> list[str]:
    """Give the names of the tables in a namespace."""
    with client.calling(f"listing the tables of {namespace}"):
        return [".".join(found) for found in client.pyiceberg.list_tables(tuple(namespace.split(".")))]


def set_properties(
    client: CatalogClient,
    name: str,
    properties: Mapping[str, str],
    expected: Expected | None = None,
    check: Check = anybody,
) -> TableState:
    """Set these properties of a table, and leave the others as they are.

    With `expected`, only the writer whose fence is still where it left it may do so; see `fenced`.
    """
    what = "setting properties"
    required = fenced(name, what, expected, check)

    def attempt(_table: Table, state: TableState) -> ProposedCommit:
        return ProposedCommit(required(state), properties_update(properties))

    # To set them twice is to set them once, so no try has to be found again.
    return commit_loop(client, name, what, attempt, tries=tries_of(expected))


def is_view(client: CatalogClient, name: str) -> bool:
    """Whether a view has that name; False also if the catalog knows no views, or shows us none."""
    try:
        with client.calling(f"looking for a view {name}"):
            return client.pyiceberg.view_exists(identifier_of(name))
    except (Denied, NamespaceMissing, RequestRefused):
        return False


def _create(client: CatalogClient, spec: TableSpec) -> None:
    identifier = identifier_of(spec.name)
    with client.calling(f"creating table {spec.name}"):
        if problem := next(_problems(spec), None):
            raise RequestRefused(f"creating table {spec.name}: {problem}")
        schema = schema_of(spec)
        try:
            client.pyiceberg.create_table(
                identifier,
                schema,
                location=spec.location,
                partition_spec=partition_spec_of(spec, schema),
                sort_order=sort_order_of(spec, schema),
                properties={_FORMAT: _FORMAT_VERSION, **spec.all_properties},
            )
        except TableAlreadyExistsError:
            if is_view(client, spec.name):
                raise RequestRefused(f"{spec.name} {A_VIEW}") from None


def _problems(spec: TableSpec) -> Iterator[str]:
    """Say which parts of the table no catalog would take, or nobody could use."""
    row = struct_of(spec.columns)
    yield from _of_columns(row)
    yield from misfits(spec.partitions or (), row)
    there = {path: (field.field_type, always) for path, field, always in columns_in(row)}
    types = {path: kind for path, (kind, _) in there.items()}
    for sort in spec.sort:
        term = term_of(sort, types)
        if why := unfit(term, types) or ("can't have a name: leave it out" if term.name else None):
            yield f"the sort field {sort} {why}"
    for path in spec.identifier:
        kind, always = there.get(path, (None, False))
        if kind is None or not always or not is_leaf(kind) or isinstance(kind, FloatType | DoubleType):
            yield f"the identifier {path} must be a required column, in nothing optional, and no fraction"
    version = int(spec.properties.get(_FORMAT, _FORMAT_VERSION))
    for column in spec.columns:
        if column.default is not None and (why := misfit(column.name, types[column.name], column.default, version)):
            yield why


def _of_columns(row: StructType) -> Iterator[str]:
    if not row.fields:
        yield "it has no columns"
    for path, kind in parts_of(row, ()):
        whose = f"the struct {'.'.join(path)}" if path else "the table"
        names = [each.name for each in kind.fields] if isinstance(kind, StructType) else []
        yield from (f"the column {'.'.join((*path, name))} appears twice" for name in {*names} if names.count(name) > 1)
        if "" in names:
            yield f"a column of {whose} has no name: give it one"
        if path and kind == StructType():
            yield f"{whose} has no fields: leave it out, or say what is in it"
