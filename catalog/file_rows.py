"""The rows of one data file as a whole, through Arrow: what is null stays null."""

import uuid
from typing import Protocol, cast

import pyarrow as pa
from pyiceberg.io.pyarrow import ParquetFormatModel, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from catalog.pyiceberg_internals import Projection, fragment_of, values_of_the_partition, without_deleted

_PARQUET = ParquetFormatModel()
_FIRST_WITH_NANOSECONDS = 3  # the format version


class FilePartition(Protocol):
    """The partition that a file lies in."""

    @property
    def partition(self) -> Record: ...

    def to_path(self) -> str: ...


def read_rows(table: Table, task: FileScanTask, columns: Schema) -> pa.Table:
    """Give all rows of a file that were not deleted."""
    version = table.metadata.format_version
    with table.io.new_input(task.file.file_path).open() as source:
        fragment = fragment_of(source, task.file.file_format)
        coarse = version < _FIRST_WITH_NANOSECONDS
        in_file = pyarrow_to_schema(
            fragment.physical_schema, table.name_mapping(), downcast_ns_timestamp_to_us=coarse, format_version=version
        )
        wanted = {field.field_id for field in columns.fields}
        rows = fragment.to_table(columns=[field.name for field in in_file.fields if field.field_id in wanted])
    missing = values_of_the_partition(table, task, columns, in_file)
    projection = Projection(in_file, coarse, projected_missing_fields=missing, allow_timestamp_tz_mismatch=True)
    return without_deleted(table, task, projection.of(rows, columns))


def write_rows(table: Table, rows: pa.Table, partition: FilePartition | None) -> DataFile:
    """Write rows to a file that no snapshot has yet; None if the table is not partitioned."""
    given = pyarrow_to_schema(rows.schema, table.schema().name_mapping, format_version=table.metadata.format_version)
    columns = sanitize_column_names(table.schema())
    rows = Projection(given, include_field_ids=True, format_model=_PARQUET).of(rows, columns)
    locations = load_location_provider(table.location(), table.properties)
    name = f"00000-0-{uuid.uuid4()}.{_PARQUET.file_extension()}"
    output = table.io.new_output(locations.new_data_location(name, cast("PartitionKey", partition)))
    with (writer := _PARQUET.create_writer(output, columns, table.properties)):
        writer.write(rows)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=partition.partition if partition else Record(),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )
    # pyiceberg sets it only on files that were read from a manifest.
    file.spec_id = table.spec().spec_id
    return file
