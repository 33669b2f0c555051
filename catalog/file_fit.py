"""Whether files that wait for their commit still fit a table whose schema or partition layout others have changed."""

from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from catalog.connection import CatalogClient
from catalog.errors import FilesUnfit, TableReplaced
from catalog.landing import FileLayout
from catalog.type_widening import Relation, relation


def fitting_layout(client: CatalogClient, name: str, uuid: str, layout: FileLayout) -> FileLayout:
    """Give the table's layout of today if files that were written for the given one can be committed to it as they are.

    Raises FilesUnfit, with the reason, if their rows have to be written again. Readers find a file's columns by their
    ids. So a wider type, a new optional column and a new name do no harm. Values of a column that others dropped would
    vanish instead, even if there is a column of the same name again.
    """
    table = client.table(name)
    if str(table.metadata.table_uuid) != uuid:
        raise TableReplaced(f"the table {name} was dropped and recreated")
    if problem := next(_problems(table, layout), None):
        raise FilesUnfit(f"the files that wait for their commit to table {name} do not fit any more: {problem}")
    return FileLayout(table.metadata.current_schema_id, table.metadata.default_spec_id)


def _problems(table: Table, layout: FileLayout) -> Iterator[str]:
    if table.metadata.default_spec_id != layout.spec_id:
        yield "it is partitioned in another way now"
    if (before := table.schemas().get(layout.schema_id)) is None:
        yield f"it has no schema {layout.schema_id} any more"
        return
    yield from _of_columns(before, table.schema())


def _of_columns(before: Schema, now: Schema) -> Iterator[str]:
    for field_id in sorted(before.field_ids):
        was, name = before.find_field(field_id), before.find_column_name(field_id)
        if field_id not in now.field_ids:
            yield f"its column {name} was dropped"
            continue
        found = now.find_field(field_id)
        if not _reads(was.field_type, found.field_type):
            yield f"its column {name} is {found.field_type} now"
        if found.required and not was.required:
            yield f"its column {name} needs a value now"
    for field_id in sorted(now.field_ids - before.field_ids):
        if now.find_field(field_id).required:
            yield f"its new column {now.find_column_name(field_id)} needs a value"


def _reads(was: IcebergType, now: IcebergType) -> bool:
    nested = next((kind for kind in (StructType, ListType, MapType) if isinstance(was, kind)), None)
    if nested:
        return isinstance(now, nested)  # the fields inside are compared by their own ids
    return relation(was, now) in {Relation.SAME, Relation.WIDER}
