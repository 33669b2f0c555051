"""A file's rows as they are, through Arrow: what is null stays null.

pyiceberg 0.12 has one way from the columns of a file to those of a table, for reading and for writing. On it a list or
a map of structs that is null becomes an empty one, and what lies in two lists is taken by its name, not by its id.
"""

import uuid
from typing import Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    ParquetFormatModel,
    _combine_positional_deletes,
    _get_column_projection_values,
    _get_file_format,
    _read_all_delete_files,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names, visit_with_partner
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, MapType

_PARQUET = ParquetFormatModel()


class Place(Protocol):
    """The partition that a file lies in."""

    @property
    def partition(self) -> Record: ...

    def to_path(self) -> str: ...


def read_rows(table: Table, task: FileScanTask, columns: Schema) -> pa.Table:
    """Give all live rows of a file."""
    path, version = task.file.file_path, table.metadata.format_version
    with table.io.new_input(path).open() as source:
        fragment = _get_file_format(task.file.file_format).make_fragment(source)
        # Only in format 3 is there a type for nanoseconds.
        coarse = version <= 2  # noqa: PLR2004
        there = pyarrow_to_schema(
            fragment.physical_schema, table.name_mapping(), downcast_ns_timestamp_to_us=coarse, format_version=version
        )
        wanted = {field.field_id for field in columns.fields}
        rows = fragment.to_table(columns=[field.name for field in there.fields if field.field_id in wanted])
    missing = _get_column_projection_values(
        task.file, columns, table.schema(), table.specs().get(task.file.spec_id), there.field_ids
    )
    way = _Way(there, coarse, projected_missing_fields=missing, allow_timestamp_tz_mismatch=True)
    rows = _along(way, rows, columns)
    deletes = _read_all_delete_files(table.io, [task]).get(path)
    return rows.take(_combine_positional_deletes(deletes, 0, len(rows))) if deletes else rows


def write_rows(table: Table, rows: pa.Table, place: Place | None) -> DataFile:
    """Write a file of rows as the table has them; no snapshot has it yet."""
    there = pyarrow_to_schema(rows.schema, table.schema().name_mapping, format_version=table.metadata.format_version)
    columns = sanitize_column_names(table.schema())
    rows = _along(_Way(there, include_field_ids=True, format_model=_PARQUET), rows, columns)
    locations = load_location_provider(table.location(), table.properties)
    name = f"00000-0-{uuid.uuid4()}.{_PARQUET.file_extension()}"
    output = table.io.new_output(locations.new_data_location(name, cast("PartitionKey", place)))
    with (writer := _PARQUET.create_writer(output, columns, table.properties)):
        writer.write(rows)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=place.partition if place else Record(),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )
    # pyiceberg knows it only of files that were read from a manifest.
    file.spec_id = table.spec().spec_id
    return file


class _Way(ArrowProjectionVisitor):
    """From the columns that are there to those that are wanted."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        if value_array is None or not isinstance(list_array, pa.ListArray | pa.LargeListArray):
            return super().list(list_type, list_array, value_array)
        elements = self._cast_if_needed(list_type.element_field, value_array)
        kind = pa.large_list(self._construct_field(list_type.element_field, elements.type))
        return pa.LargeListArray.from_arrays(_offsets(list_array), elements, kind)

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        if map_array is None or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        fields = (
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        return pa.MapArray.from_arrays(_offsets(map_array), keys, values, pa.map_(*fields))


def _along(way: _Way, rows: pa.Table, columns: Schema) -> pa.Table:
    accessor = ArrowAccessor(way._file_schema)  # noqa: SLF001
    found = [
        pa.RecordBatch.from_struct_array(visit_with_partner(columns, batch, way, accessor))
        for batch in rows.to_batches()
    ]
    return pa.Table.from_batches(found) if found else schema_to_pyarrow(columns).empty_table()


def _offsets(array: pa.Array) -> pa.Array:
    """Where each list ends, as Arrow is told of null ones."""
    valid = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pc.if_else(valid, array.offsets, None)
