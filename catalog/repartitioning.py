"""Makes a table's next layout: which partition fields are dropped and added, and their ids and names.

A field that stays or comes back keeps its id. pyiceberg's own update does not let a new field take the name of one that
is dropped with it. Here each field gets a name that no other one has or had: engines that read files of several layouts
at once find fields by name.
"""

from collections.abc import Sequence
from itertools import count

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import index_by_name
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    SetDefaultSpecUpdate,
)
from pyiceberg.transforms import parse_transform

from catalog.commits import Requirements, Updates
from catalog.conversions import FIRST_PARTITION_ID, field_of, partition_of
from catalog.partitions import VOID, key_of, named
from catalog.specs import Partition

_LAST_ADDED = -1
_KEEPS_ALL = 1  # in this format version a dropped field stays as a void one for good


def repartition(metadata: TableMetadata, wanted: Sequence[Partition]) -> tuple[Requirements, Updates]:
    """Give what makes these fields the table's layout; if the table had such a layout before, it is used again."""
    specs, fields = metadata.specs(), _fields(metadata, wanted)
    known = next((number for number, spec in specs.items() if spec.fields == fields), None)
    new = AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=max(specs) + 1))
    default = SetDefaultSpecUpdate.model_validate({"spec-id": _LAST_ADDED if known is None else known})
    requirements = (
        AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )
    return requirements, (new, default) if known is None else (default,)


def _fields(metadata: TableMetadata, wanted: Sequence[Partition]) -> tuple[PartitionField, ...]:
    schema, stays = metadata.schema(), metadata.format_version == _KEEPS_ALL
    there = [(partition_of(each, schema), each) for each in metadata.spec().fields]
    ever = [(partition_of(each, schema), each) for spec in metadata.specs().values() for each in spec.fields]
    added = {key_of(each): each for each in wanted}
    kept, gone = [], []
    for each, field in there:
        if key_of(each) in added:
            kept.append((added.pop(key_of(each)), field))
        elif stays:
            gone.append((each, field))

    past = [] if stays else ever
    keeps = {key_of(each): each.called for each, _ in (*past, *there)}
    columns, living = index_by_name(schema), [*(each for each, _ in kept), *added.values()]
    living = named(living, columns, {each.called for each, _ in past}, keeps)
    used = {each.called for each in living}
    # Void fields give way: a field's name is that in the latest layout that has it.
    voids = [Partition(each.column, VOID, None if each.called in used else each.called) for each, _ in gone]

    had = {(key_of(each), each.called): field.field_id for each, field in past}
    ids = {field.field_id for _, field in kept}
    new_ids = count((metadata.last_partition_id or FIRST_PARTITION_ID - 1) + 1)
    fields = [_renamed(field, each) for (_, field), each in zip(kept, living, strict=False)]
    for each in living[len(kept) :]:
        number = had.get((key_of(each), each.called))
        fields.append(field_of(each, schema, next(new_ids) if number is None or number in ids else number))
    fields += [_renamed(field, each) for (_, field), each in zip(gone, named(voids, columns, used), strict=True)]
    return tuple(sorted(fields, key=lambda field: field.field_id))


def _renamed(field: PartitionField, as_it: Partition) -> PartitionField:
    return field.model_copy(update={"name": as_it.called, "transform": parse_transform(as_it.transform)})
