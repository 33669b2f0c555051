"""Default values of a table's columns: which types can have them, which values fit, and what has to change.

Iceberg also allows defaults within structs, and for dates and similar types. This package does not support those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from struct import pack, unpack

from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from catalog.changes import Add, Evolution, Fill
from catalog.contracts import Contract, Rule
from catalog.fields import is_leaf
from catalog.specs import Column, Default, TableState
from catalog.type_widening import Relation, relation
from catalog.typenames import parse_type, type_text

_FORMAT = 3  # the first format version with defaults
_TAKEN: Mapping[IcebergType, tuple[type[Default], ...]] = {
    BooleanType(): (bool,),
    IntegerType(): (int,),
    LongType(): (int,),
    FloatType(): (int, float),
    DoubleType(): (int, float),
    StringType(): (str,),
}
_BITS: Mapping[IcebergType, int] = {IntegerType(): 31, LongType(): 63}
_PACKED: Mapping[IcebergType, str] = {FloatType(): "f", DoubleType(): "d"}


def column_of(field: NestedField) -> Column:
    """Give a table's field as plain values."""
    default = field.write_default if field.field_type in _TAKEN else None
    return Column(field.name, type_text(field.field_type), field.required, field.doc, default)


def filled(
    current: TableState, now: Sequence[Column], wanted: Sequence[Column], changes: Sequence[Evolution], rules: Contract
) -> tuple[list[Evolution], list[str]]:
    """Add the wanted defaults to the changes, and say which are impossible; `now` has the columns after the changes."""
    kinds = {column.name: parse_type(column.type) for column in now}
    kept = {column.name for column in current.columns if rules.rule_of(column.name) is not Rule.EVOLVE}
    firsts = {column.name: column for column in reversed(wanted)}  # the first of several with one name
    asked = {
        name: column.default
        for name, column in firsts.items()
        if column.default is not None
        and name in kinds
        and name not in kept
        and _takes(kinds[name], parse_type(column.type))
    }
    misfits = {
        name: why
        for name, default in asked.items()
        if (why := misfit(name, kinds[name], default, current.format_version))
    }
    defaults = {name: default for name, default in asked.items() if name not in misfits}
    made = [_with_default(change, defaults) for change in changes]
    fills = [
        Fill(column.name, default)
        for column in current.columns
        if (default := defaults.get(column.name)) is not None and default != column.default
    ]
    return [*made, *fills], [*misfits.values()]


def _takes(there: IcebergType, wanted: IcebergType) -> bool:
    """Whether the wanted field goes into the column; if it is set aside, its default does not matter."""
    if is_leaf(there) and is_leaf(wanted):
        return relation(there, wanted) in {Relation.SAME, Relation.NARROWER}
    return type(there) is type(wanted)


def _with_default(change: Evolution, defaults: Mapping[str, Default]) -> Evolution:
    if not isinstance(change, Add) or change.parent:
        return change
    return replace(change, column=replace(change.column, default=defaults.get(change.column.name)))


def misfit(name: str, kind: IcebergType, default: Default, version: int) -> str | None:
    """Say why a column of the type can't have the default, in a table of that format."""
    if version < _FORMAT:
        return f"a default for {name} needs a table of format {_FORMAT}, and this one has {version}"
    if kind not in _TAKEN:
        return (
            f"{name} can't have a default: its type is {type_text(kind)}, and understood are numbers, truths and text"
        )
    is_one = type(default) in _TAKEN[kind] and _survives(kind, default)
    return None if is_one else f"{default!r} is no default for {name}: it is no {type_text(kind)}"


def _survives(kind: IcebergType, default: Default) -> bool:
    """Whether a column of the type holds exactly that value."""
    if kind in _BITS:
        return bool(-(2 ** _BITS[kind]) <= default < 2 ** _BITS[kind])
    if kind not in _PACKED:
        return True
    try:
        (held,) = unpack(_PACKED[kind], pack(_PACKED[kind], float(default)))
    except OverflowError:
        return False
    return isfinite(held) and bool(held == default)
