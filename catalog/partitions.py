"""Partition fields: which a table can have, what they are named, and whether two layouts are the same."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pyiceberg.schema import index_by_name
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType, StructType

from catalog.fields import columns_in, is_leaf, word_for
from catalog.specs import Partition, Sort

IDENTITY, VOID = "identity", "void"
_TIMES = {"year", "month", "day", "hour"}
_TRANSFORM = re.compile(r"identity|void|year|month|day|hour|(?:bucket|truncate)\[(?P<number>[1-9]\d{0,8})\]")
_UNDERSTOOD = "identity, void, year, month, day, hour, bucket[16] and truncate[4]"

Key = tuple[str, str]


def shown(partitions: Sequence[Partition]) -> str:
    """Write the fields as a person would."""
    return f"[{', '.join(map(str, partitions))}]"


def key_of(partition: Partition) -> Key:
    """Give what the field computes from a row, whatever its name is."""
    return partition.column, partition.transform


def same_partitions(there: Sequence[Partition], wanted: Sequence[Partition]) -> bool:
    """Whether both layouts partition files alike.

    The order of fields does not matter, nor does a void field that nobody wants, as tables of format 1 keep them. A
    field's name matters only if one is wanted.
    """
    names: dict[Key, set[str]] = {}
    for each in there:
        names.setdefault(key_of(each), set()).add(each.called)
    saying = {key for key in names if key[1] != VOID} <= {key_of(each) for each in wanted}
    found = [names.get(key_of(each), set()) for each in wanted]
    return saying and all(
        has and (each.name is None or each.name in has) for each, has in zip(wanted, found, strict=True)
    )


def named(
    partitions: Sequence[Partition],
    columns: Collection[str],
    taken: Collection[str] = (),
    keeps: Mapping[Key, str] | None = None,
) -> list[Partition]:
    """Give each field a name that nothing else has: its own, else the one it `keeps`, else one like Iceberg's usual."""
    used = {each.name for each in partitions if each.name is not None}
    found = []
    for each in partitions:
        name, kept = each.name, (keeps or {}).get(key_of(each))
        if name is None:
            free = (one for one in _names(each) if not (one in used or one in taken or _is_column(each, one, columns)))
            name = kept if kept is not None and kept not in used else next(free)
            used.add(name)
        found.append(replace(each, name=name))
    return found


def misfits(partitions: Sequence[Partition], row: StructType, ever: Collection[Partition] = ()) -> list[str]:
    """Say of each partition field why no table with such rows can have it; `ever` has all that the table ever had."""
    types = {path: field.field_type for path, field, _ in columns_in(row)}
    columns = index_by_name(row) if partitions else {}
    reasons = (
        (each, unfit(each, types) or _again(each, partitions[:at]) or _misnamed(each, partitions[:at], columns, ever))
        for at, each in enumerate(partitions)
    )
    return [f"the partition field {each} {why}" for each, why in reasons if why]


def term_of(sort: Sort, columns: Collection[str]) -> Partition:
    """Give what a sort field sorts by: a column of exactly that name, or else a term; a ValueError if it is neither."""
    return Partition(sort.column) if sort.column in columns else Partition.parse(sort.column)


def unfit(term: Partition, types: Mapping[str, IcebergType]) -> str | None:
    """Say why the term can't be computed from columns of these types."""
    kind = types.get(term.column)
    if not _TRANSFORM.fullmatch(term.transform):
        return f"has the transform {term.transform}, and understood are {_UNDERSTOOD}: use one of these"
    if kind is None:
        return f"names {term.column}, which is no column that it can be computed from"
    if not is_leaf(kind) or not parse_transform(term.transform).can_transform(kind):
        return f"can't be computed from {term.column}, which is {word_for(kind)}"
    return None


def _again(partition: Partition, earlier: Iterable[Partition]) -> str | None:
    transforms = [each.transform for each in earlier if each.column == partition.column]
    if partition.transform in transforms:
        return "appears twice"
    if partition.transform in _TIMES and _TIMES.intersection(transforms):
        return f"repeats what another one computes from {partition.column}"
    return None


def _misnamed(
    partition: Partition, earlier: Iterable[Partition], columns: Collection[str], ever: Iterable[Partition]
) -> str | None:
    """Say why the field can't have the name that it was given; without one, a free name will be found."""
    name = partition.name
    if name is None:
        return None
    if not name:
        return "has an empty name: give it another one, or leave it out"
    if _is_column(partition, name, columns):
        return f"can't be named {name}, as a column is: give it another name"
    if any(each.name == name for each in earlier):
        return f"can't be named {name}, as another one is: give it another name"
    before = [each for each in ever if each.called == name]
    # Engines that read files of several layouts at once find each field by its name.
    if before and key_of(partition) not in map(key_of, before):
        return f"can't be named {name}, as {replace(before[0], name=None)} is or was: give it another name"
    return None


def _is_column(partition: Partition, name: str, columns: Collection[str]) -> bool:
    """Whether Iceberg would confuse the name with a column's; only identity and void may be named as their column."""
    return name in columns and not (name == partition.column and partition.transform in {IDENTITY, VOID})


def _names(partition: Partition) -> Iterator[str]:
    """Try the usual name first, then the one with the number, as Iceberg names a field that is added to a table."""
    usual, number = partition.usual_name, partition.transform.removesuffix("]").partition("[")[2]
    yield usual
    if number:
        yield (usual := f"{usual}_{number}")
    yield from (f"{usual}_{again}" for again in count(2))
