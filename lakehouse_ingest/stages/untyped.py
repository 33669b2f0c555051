"""Formats whose values are all texts, such as `k=v` lines: a text is read as the type that its column declares.

A text that is no value of that type stays a text. So it does not fit its column, and that is the usual fault. Times,
dates and binary columns take texts anyway.
"""

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.schema.times import NUMBER
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.records import Real, Tree, Value

LONGEST = 1_000  # characters of a number: Python needs long for longer ones
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
TRUTHS = {"true": True, "false": False}

Read = Callable[[Value], Value]


def reading(form: Format, columns: Sequence[ColumnPlan]) -> Callable[[Tree], Tree] | None:
    """Reads the texts of a record by the types of these columns. None if there is nothing to read."""
    if not getattr(form, "untyped", False):
        return None
    found = {each.field: read for each in columns if (read := _of(arrow_type(each.iceberg)))}
    return (lambda tree: _fields(tree, found)) if found else None


def _of(kind: pa.DataType) -> Read | None:
    if pa.types.is_nested(kind):
        return _within(kind)
    if pa.types.is_integer(kind):
        return _text(_whole)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _text(_number)
    return _text(_truth) if pa.types.is_boolean(kind) else None


def _within(kind: pa.DataType) -> Read | None:
    """For what lies within objects and lists."""
    if pa.types.is_struct(kind):
        inner = {each.name: read for each in kind if (read := _of(each.type))}
        return lambda value: _fields(value, inner) if isinstance(value, dict) else value
    read = _of(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    if read is None:
        return None
    if pa.types.is_list(kind):
        return lambda value: [read(each) for each in value] if isinstance(value, list) else value
    return lambda value: {key: read(each) for key, each in value.items()} if isinstance(value, dict) else value


def _fields(tree: Tree, reads: dict[str, Read]) -> Tree:
    return {name: read(value) if (read := reads.get(name)) else value for name, value in tree.items()}


def _text(read: Callable[[str], Value]) -> Read:
    """Only texts are read, without the spaces around them."""
    return lambda value: value if not isinstance(value, str) or (it := read(value.strip())) is None else it


def _whole(text: str) -> int | None:
    return int(text) if len(text) <= LONGEST and WHOLE.fullmatch(text) else None


def _number(text: str) -> int | Real | None:
    whole = _whole(text)
    if whole is not None:
        return whole
    return Real(text) if text == "NaN" or (len(text) <= LONGEST and NUMBER.fullmatch(text)) else None


def _truth(text: str) -> bool | None:
    return TRUTHS.get(text.lower())
