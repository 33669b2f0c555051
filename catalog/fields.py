"""Columns as trees of pyiceberg's fields, and paths within them; the ids in such a tree mean nothing."""

from collections.abc import Iterable, Iterator

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.specs import Column
from catalog.typenames import parse_type, type_text

Path = tuple[str, ...]

ELEMENT, KEY, VALUE = "element", "key", "value"  # how a path leads through lists and maps


def struct_of(columns: Iterable[Column]) -> StructType:
    """Give columns as the struct of a table's row; its ids mean nothing."""
    return StructType(*map(_field, columns))


def columns_of(row: IcebergType) -> tuple[Column, ...]:
    """Give a struct's fields as plain values."""
    if not isinstance(row, StructType):
        raise TypeError(f"{row} has no fields: only a struct can become columns")
    return tuple(Column(each.name, type_text(each.field_type), each.required, each.doc) for each in row.fields)


def is_leaf(kind: IcebergType) -> bool:
    return not isinstance(kind, StructType | ListType | MapType)


def word_for(kind: IcebergType) -> str:
    """Name the kind of a nested type, and any other type in full, which is short anyway."""
    return bare_text(kind) if is_leaf(kind) else f"a {bare_text(kind).partition('<')[0]}"


def bare_text(kind: IcebergType) -> str:
    return type_text(kind, bare=True)


def _field(column: Column) -> NestedField:
    return named(column.name, parse_type(column.type), column.doc, required=column.required)


def named(name: str, kind: IcebergType, doc: str | None = None, *, required: bool = False) -> NestedField:
    return NestedField(field_id=0, name=name, field_type=kind, required=required, doc=doc)


def list_of(element: NestedField) -> ListType:
    return ListType(element_id=0, element_type=element.field_type, element_required=element.required)


def map_of(key: IcebergType, value: NestedField) -> MapType:
    return MapType(key_id=0, key_type=key, value_id=0, value_type=value.field_type, value_required=value.required)


def columns_in(row: StructType, path: Path = (), *, required: bool = True) -> Iterator[tuple[str, NestedField, bool]]:
    """Give each field that every row has at most once, with its path, and whether every row has it."""
    for field in row.fields:
        inside, always = (*path, field.name), required and field.required
        yield ".".join(inside), field, always
        if isinstance(field.field_type, StructType):
            yield from columns_in(field.field_type, inside, required=always)


def paths_in(kind: IcebergType, path: Path) -> Iterator[Path]:
    """Give the path of every field that has a name of its own."""
    for inside, part in parts_of(kind, path):
        if isinstance(part, StructType):
            yield from ((*inside, field.name) for field in part.fields)


def parts_of(kind: IcebergType, path: Path) -> Iterator[tuple[Path, IcebergType]]:
    """Give the type with its path, and the same for each type inside it."""
    yield path, kind
    match kind:
        case StructType():
            for field in kind.fields:
                yield from parts_of(field.field_type, (*path, field.name))
        case ListType():
            yield from parts_of(kind.element_type, (*path, ELEMENT))
        case MapType():
            yield from parts_of(kind.key_type, (*path, KEY))
            yield from parts_of(kind.value_type, (*path, VALUE))
