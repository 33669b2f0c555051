"""Partitions: whether they can be had, and whether two layouts are one."""

from collections.abc import Sequence

from pyiceberg.transforms import parse_transform
from pyiceberg.types import StructType

from catalog.fields import columns_in, is_leaf, word_for
from catalog.specs import Partition

VOID = "void"
_TIMES = {"year", "month", "day", "hour"}


def shown(partitions: Sequence[Partition]) -> str:
    """Write them as a person does."""
    return f"[{', '.join(map(str, partitions))}]"


def same_partitions(there: Sequence[Partition], wanted: Sequence[Partition]) -> bool:
    """Whether files are laid out alike: order says nothing, and a field's name only where one is wanted."""
    if not any(each.transform == VOID for each in wanted):
        # So a table of format 1 keeps a field that was dropped.
        there = [each for each in there if each.transform != VOID]
    names = {(each.column, each.transform): each.name for each in there}
    return names.keys() == {(each.column, each.transform) for each in wanted} and all(
        each.name in {None, names[each.column, each.transform]} for each in wanted
    )


def misfits(partitions: Sequence[Partition], row: StructType) -> list[str]:
    """Say of each partition field why no table with such rows can have it."""
    types = {path: field.field_type for path, field, _ in columns_in(row)}
    found = []
    for number, each in enumerate(partitions):
        kind = types.get(each.column)
        earlier = [before for before in partitions[:number] if before.column == each.column]
        if kind is None:
            found.append(f"the partition field {each} names {each.column}, which is no column that it can be taken of")
        elif not is_leaf(kind) or not parse_transform(each.transform).can_transform(kind):
            found.append(f"the partition field {each} can't be taken of {each.column}, which is {word_for(kind)}")
        elif any(before.transform == each.transform for before in earlier):
            found.append(f"the partition field {each} is there twice")
        elif each.transform in _TIMES and any(before.transform in _TIMES for before in earlier):
            found.append(f"the partition field {each} says again what another one says of {each.column}")
    return found
