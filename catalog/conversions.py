"""Converts pyiceberg's tables, schemas and specs to our plain values, and back."""

from dataclasses import replace
from typing import cast

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids, index_by_name
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import NestedField, StructType

from catalog.column_defaults import column_of
from catalog.partitions import named, term_of
from catalog.specs import Partition, Snapshot, Sort, TableSpec, TableState
from catalog.typenames import parse_type

# Iceberg numbers partition fields from here on.
FIRST_PARTITION_ID = 1000


def state_of(table: Table) -> TableState:
    """Give a loaded table as plain values."""
    return state_from(".".join(table.name()), table.metadata, table.metadata_location)


def state_from(name: str, metadata: TableMetadata, location: str) -> TableState:
    """Give a table's metadata as plain values."""
    schema = metadata.schema()
    partitions = tuple(partition_of(field, schema) for field in metadata.spec().fields)
    ever = [partition_of(field, schema) for spec in metadata.specs().values() for field in spec.fields]
    return TableState(
        name=name,
        uuid=str(metadata.table_uuid),
        location=metadata.location,
        format_version=metadata.format_version,
        schema_id=metadata.current_schema_id,
        columns=tuple(map(column_of, schema.fields)),
        partitions=partitions,
        sort=tuple(_sort(field, schema) for field in metadata.sort_order().fields),
        properties=dict(metadata.properties),
        refs={ref: head.snapshot_id for ref, head in metadata.refs.items()},
        snapshots={snapshot.snapshot_id: _snapshot(snapshot) for snapshot in metadata.snapshots},
        metadata_location=location,
        identifier=tuple(sorted(schema.identifier_field_names())),
        former=tuple(each for each in dict.fromkeys(ever) if each not in partitions),
        spec_id=metadata.default_spec_id,
    )


def schema_of(spec: TableSpec) -> Schema:
    """Give the declared columns as a schema; a catalog gives the fields its own ids when it creates the table."""
    fields = (
        NestedField(
            field_id=number,
            name=column.name,
            field_type=parse_type(column.type),
            required=column.required,
            doc=column.doc,
        )
        for number, column in enumerate(spec.columns, start=1)
    )
    # Each column's type was parsed with ids of its own, starting at 1.
    numbered = Schema(*cast(StructType, assign_fresh_schema_ids(StructType(*fields))).fields, schema_id=0)
    identifier = [numbered.find_field(each).field_id for each in spec.identifier]
    return Schema(*numbered.fields, schema_id=0, identifier_field_ids=identifier)


def partition_spec_of(spec: TableSpec, schema: Schema) -> PartitionSpec:
    """Give the declared partitions with the schema's ids."""
    fields = named(spec.partitions or (), index_by_name(schema))
    return PartitionSpec(*(field_of(each, schema, number) for number, each in enumerate(fields, FIRST_PARTITION_ID)))


def field_of(partition: Partition, schema: Schema, number: int) -> PartitionField:
    """Give a partition field with the schema's id of its column; `number` is its own id."""
    return PartitionField(
        source_id=schema.find_field(partition.column).field_id,
        field_id=number,
        transform=parse_transform(partition.transform),
        name=partition.called,
    )


def sort_order_of(spec: TableSpec, schema: Schema) -> SortOrder:
    """Give the declared order with the schema's ids; nulls come first if ascending, last if descending."""
    return SortOrder(*(_sort_field(sort, schema) for sort in spec.sort))


def partition_of(field: PartitionField, schema: Schema) -> Partition:
    """Give a partition field as a plain value."""
    column = schema.find_column_name(field.source_id) or f"#{field.source_id}"
    partition = Partition(column, str(field.transform))
    return partition if field.name == partition.usual_name else replace(partition, name=field.name)


def _sort(field: SortField, schema: Schema) -> Sort:
    column = schema.find_column_name(field.source_id) or f"#{field.source_id}"
    term = column if isinstance(field.transform, IdentityTransform) else str(Partition(column, str(field.transform)))
    return Sort(term, field.direction is SortDirection.DESC)


def _sort_field(sort: Sort, schema: Schema) -> SortField:
    term = term_of(sort, index_by_name(schema))
    return SortField(
        source_id=schema.find_field(term.column).field_id,
        transform=parse_transform(term.transform),
        direction=SortDirection.DESC if sort.descending else SortDirection.ASC,
        null_order=NullOrder.NULLS_LAST if sort.descending else NullOrder.NULLS_FIRST,
    )


def _snapshot(snapshot: IcebergSnapshot) -> Snapshot:
    summary = snapshot.summary
    return Snapshot(
        id=snapshot.snapshot_id,
        parent=snapshot.parent_snapshot_id,
        sequence=snapshot.sequence_number or 0,
        timestamp_ms=snapshot.timestamp_ms,
        summary={"operation": summary.operation.value, **summary.additional_properties} if summary else {},
    )
