"""Data files as a task writes them and the driver commits them: plain values that can be pickled.

The driver describes a table once (`TableFiles`). A task opens a `FileWriter` (see `file_writer`) for each table and
share, and returns a `DataFileReceipt` for each file. Only the driver makes pyiceberg's `DataFile` of it and commits.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote, unquote

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record

from catalog.class_names import without_code
from catalog.connection import CatalogClient

_STORES = ("s3.", "gcs.", "adls.", "hdfs.", "client.")  # what a store's properties begin with
_NAME = re.compile(
    r"(?:.*/)?(?P<pipeline>[^/]+)-e(?P<epoch>\d+)-b(?P<batch>\d+)-s(?P<share>-?\d+)-a(?P<attempt>\d+)"
    r"-[0-9a-f]{16}-\d{5,}\.parquet"
)


@dataclass(frozen=True)
class FileNames:
    """Who writes a file: its name tells it, so that files of dead epochs can be told from those of live ones."""

    pipeline: str
    epoch: int
    batch: int
    share: int
    attempt: int

    def stem(self) -> str:
        """Give the part that the names of one writer's files share; its random part is another one at each call."""
        return (
            f"{quote(self.pipeline, safe='')}-e{self.epoch}-b{self.batch}-s{self.share}-a{self.attempt}"
            f"-{secrets.token_hex(8)}"
        )

    @classmethod
    def of(cls, path: str) -> "FileNames | None":
        """Read a path back; None if no `FileWriter` named the file."""
        if not (found := _NAME.fullmatch(path)):
            return None
        numbers = (int(found[part]) for part in ("epoch", "batch", "share", "attempt"))
        return cls(unquote(found["pipeline"]), *numbers)


@dataclass(frozen=True)
class TableFiles:
    """All that a task has to know of a table to write files for it."""

    name: str
    uuid: str
    location: str
    schema_json: str
    schema_id: int
    spec_json: str
    spec_id: int
    order_json: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str] = field(repr=False)  # they may hold credentials
    hidden_keys: str  # a pattern of the properties whose values are shown nowhere
    are_vended: bool = False  # the catalog has given credentials for the files, which end some day

    @classmethod
    def of(cls, client: CatalogClient, table: Table) -> "TableFiles":
        """Describe a table as it was loaded; class names that its properties or the catalog give are left out."""
        name = ".".join(table.name())
        own = client.pyiceberg.properties
        io = without_code(table.io.properties, own, f"table {name}")
        # What is no text has been set by us. The rest, such as the catalog's token, is of use to its client alone.
        stores = {key: text for key, text in io.items() if isinstance(text, str) and key.startswith(_STORES)}
        return cls(
            name=name,
            uuid=str(table.metadata.table_uuid),
            location=table.location(),
            schema_json=table.schema().model_dump_json(),
            schema_id=table.schema().schema_id,
            spec_json=table.spec().model_dump_json(),
            spec_id=table.spec().spec_id,
            order_json=table.sort_order().model_dump_json(),
            properties={key: value for key, value in table.properties.items() if key.startswith("write.")},
            io_properties=stores,
            hidden_keys=client.hidden_keys,
            are_vended=any(own.get(key) != text for key, text in stores.items()),
        )

    @cached_property
    def schema(self) -> Schema:
        return Schema.model_validate_json(self.schema_json)

    @cached_property
    def spec(self) -> PartitionSpec:
        return PartitionSpec.model_validate_json(self.spec_json)

    @cached_property
    def order(self) -> SortOrder:
        return SortOrder.model_validate_json(self.order_json)


def table_files(client: CatalogClient, name: str) -> TableFiles:
    """Describe a table as it is now."""
    return TableFiles.of(client, client.table(name))


@dataclass(frozen=True)
class DataFileReceipt:
    """A file that was written and that no snapshot has yet."""

    path: str
    partition: tuple[object, ...]  # in the order of the spec's fields, as Iceberg stores them; empty if there are none
    spec_id: int
    record_count: int
    size: int  # bytes
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    sort_order_id: int | None

    def data_file(self) -> DataFile:
        """Make what pyiceberg commits."""
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=self.record_count,
            file_size_in_bytes=self.size,
            column_sizes=dict(self.column_sizes),
            value_counts=dict(self.value_counts),
            null_value_counts=dict(self.null_counts),
            nan_value_counts=dict(self.nan_counts),
            lower_bounds=dict(self.lower_bounds),
            upper_bounds=dict(self.upper_bounds),
            key_metadata=None,
            split_offsets=list(self.split_offsets),
            equality_ids=None,
            sort_order_id=self.sort_order_id,
        )
        # pyiceberg sets it only on files that were read from a manifest.
        file.spec_id = self.spec_id
        return file
