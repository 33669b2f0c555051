"""All that we use of pyiceberg beyond its public interface, each with the reason.

pyiceberg may change these with any release, so `pyproject.toml` pins its minor version. Before you raise the pin, read
this module against the new release; no other module may touch a name with an underscore.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.catalog import TOKEN
from pyiceberg.catalog.rest import CREDENTIAL, SNAPSHOT_LOADING_MODE, RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import AuthManager, NoopAuthManager
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    _combine_positional_deletes,
    _determine_partitions,
    _get_column_projection_values,
    _get_file_format,
    _read_all_delete_files,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    FileFormat,
    ManifestContent,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import TableVersion
from pyiceberg.types import ListType, MapType
from pyiceberg.utils.properties import property_as_bool
from requests import Session

from catalog.class_names import refuse_code, without_code
from catalog.specs import Connection

_DELEGATION = "X-Iceberg-Access-Delegation"
_NUMBERS_ROWS: Literal[3] = 3  # the format version in which each row has a number


# -- commits: the public way sends them at once, and repeats an append upon whatever main is by then ------------------


class _UnchangedTransaction(Transaction):
    """A transaction without changes of its own, which shows the table as it was loaded.

    pyiceberg computes that by a deep copy of all metadata, nine times for one append. With 100 snapshots these copies
    take 35 ms, and everything else 5.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def append_onto_head(table: Table, summary: Mapping[str, str]) -> Any:
    """Begin a snapshot upon main's head that no ref points to; `append_data_file` adds to it.

    Small manifests are merged once there are many, unless the table says otherwise: so do engines, while pyiceberg
    waits to be asked. Each commit lists them all, and after 10,000 commits that would take 0.25 s.
    """
    upon_head = _UnchangedTransaction(table)
    if isinstance(table.metadata, TableMetadataV3):
        return _NumberedAppend(Operation.APPEND, upon_head, table.io, snapshot_properties=dict(summary), branch=None)
    producer = upon_head.update_snapshot(dict(summary), branch=None).merge_append()
    producer._merge_enabled = property_as_bool(  # noqa: SLF001
        table.metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, default=True
    )
    return producer


class _NumberedAppend(_FastAppendFiles):
    """An append to a table of format version 3. pyiceberg 0.12 reads such tables and doesn't write them.

    There the list of manifests says of each data manifest which number its first row has, and the table which one is
    free. Manifests are not merged: each file in them would need its number written out.
    """

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        output = self.new_manifest_output()
        return _NumberedManifest(spec, self.schema(), output, self._snapshot_id, self._compression)

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id or 0)
        if parent is None:
            return []
        # pyiceberg's own way leaves out the numbers.
        with AvroFile[ManifestFile](
            self._io.new_input(parent.manifest_list),
            MANIFEST_LIST_FILE_SCHEMAS[_NUMBERS_ROWS],
            read_types={-1: ManifestFile, 508: PartitionFieldSummary},
            read_enums={517: ManifestContent},
        ) as there:
            return [each for each in there if each.has_added_files() or each.has_existing_files()]

    def _commit(self) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        table, manifests = self._transaction.table_metadata, self._manifests()
        assert isinstance(table, TableMetadataV3)
        sequence, first = table.next_sequence_number(), table.next_row_id or 0
        name = f"snap-{self._snapshot_id}-0-{self.commit_uuid}.avro"
        path = self._transaction._table.location_provider().new_metadata_location(name)  # noqa: SLF001
        self._written_manifest_lists.append(path)
        output = self._io.new_output(path)
        with _NumberedManifests(
            output, self._snapshot_id, self._parent_snapshot_id, sequence, self._compression, first
        ) as listed:
            listed.add_manifests(manifests)
        snapshot = {
            "snapshot-id": self._snapshot_id,
            "parent-snapshot-id": self._parent_snapshot_id,
            "manifest-list": path,
            "sequence-number": sequence,
            "summary": self._summary(self.snapshot_properties),
            "schema-id": table.current_schema_id,
            "first-row-id": first,
            "added-rows": listed.free - first,
        }
        return (AddSnapshotUpdate(snapshot=Snapshot.model_validate(snapshot)),), ()


class _NumberedManifest(ManifestWriterV2):
    @property
    def version(self) -> TableVersion:
        return _NUMBERS_ROWS


class _NumberedManifests(ManifestListWriterV2):
    """Gives a number to each data manifest that has none: the new one, and those from before the table was upgraded."""

    def __init__(
        self,
        output: OutputFile,
        snapshot: int,
        parent: int | None,
        sequence: int,
        compression: AvroCompressionCodec,
        free: int,
    ) -> None:
        super().__init__(output, snapshot, parent, sequence, compression)
        self.free = free  # the number of the next row
        self._meta |= {"format-version": str(_NUMBERS_ROWS), "first-row-id": str(free)}

    def __enter__(self) -> Self:
        schema = MANIFEST_LIST_FILE_SCHEMAS[_NUMBERS_ROWS]
        self._writer = AvroOutputFile(self._output_file, schema, "manifest_file", schema, self._meta)
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        prepared = super().prepare_manifest(manifest_file)
        *values, number = [*prepared._data, None][: len(MANIFEST_LIST_FILE_SCHEMAS[_NUMBERS_ROWS].fields)]  # noqa: SLF001
        if number is None and prepared.content == ManifestContent.DATA:
            number = self.free
            self.free += (prepared.added_rows_count or 0) + (prepared.existing_rows_count or 0)
        return ManifestFile(*values, number)


def uncommitted_snapshot(producer: Any) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Write a snapshot's manifests, and give what would commit it."""
    updates, requirements = producer._commit()  # noqa: SLF001
    return tuple(updates), tuple(requirements)


def metadata_files(producer: Any) -> tuple[str, ...]:
    """Give the manifests that were written for a snapshot, and the list of all its manifests."""
    return (*producer._written_manifests, *producer._written_manifest_lists)  # noqa: SLF001


def uncommitted_changes(transaction: Transaction) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Give what would commit the changes that a transaction has collected."""
    return transaction._requirements, transaction._updates  # noqa: SLF001


# -- rows: the public way reads and writes whole tables, and loses which lists were null ------------------------------


def rows_by_partition(table: Table, rows: pa.Table) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """Split rows by the partition that they belong to; the public way would commit the files as well."""
    for part in _determine_partitions(table.spec(), table.schema(), rows):
        yield part.partition_key, part.arrow_table_partition


def fragment_of(source: Any, file_format: FileFormat) -> Any:
    """Open a data file, whichever its format is."""
    return _get_file_format(file_format).make_fragment(source)


def without_deleted(table: Table, task: FileScanTask, rows: pa.Table) -> pa.Table:
    """Leave out the rows that delete files remove."""
    deletes = _read_all_delete_files(table.io, [task]).get(task.file.file_path)
    return rows.take(_combine_positional_deletes(deletes, 0, len(rows))) if deletes else rows


def values_of_the_partition(table: Table, task: FileScanTask, columns: Schema, in_file: Schema) -> dict[int, Any]:
    """Give columns that are not in the file, since their one value is in the file's partition."""
    spec = table.specs().get(task.file.spec_id)
    return _get_column_projection_values(task.file, columns, table.schema(), spec, in_file.field_ids)


class Projection(ArrowProjectionVisitor):
    """Turns a file's columns into those that are wanted, or a table's into those of a file.

    pyiceberg 0.12 uses its visitor for both. That visitor turns a null list or map of structs into an empty one. Within
    two nested lists it finds a field by its name instead of its id.
    """

    def of(self, rows: pa.Table, columns: Schema) -> pa.Table:
        accessor = ArrowAccessor(self._file_schema)
        found = [
            pa.RecordBatch.from_struct_array(visit_with_partner(columns, batch, self, accessor))
            for batch in rows.to_batches()
        ]
        return pa.Table.from_batches(found) if found else schema_to_pyarrow(columns).empty_table()

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


def _offsets(array: pa.Array) -> pa.Array:
    """Give the offsets of a list array, null where the list is null. Arrow finds the null lists by them."""
    valid = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pc.if_else(valid, array.offsets, None)


# -- requests: the public class has no time limit, and believes what tables and catalogs say --------------------------


class _Remembered:
    """What the environment says of proxies and certificates for a host, asked once.

    requests reads all variables twice for each request, which takes a millisecond.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._ask = session, session.merge_environment_settings
        self._known: dict[object, Mapping[str, Any]] = {}

    def __call__(self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        own = self._session
        at = urlsplit(url)
        key = repr((at.scheme, at.netloc, proxies, stream, verify, cert, own.proxies, own.verify, own.cert))
        if key not in self._known:
            self._known[key] = self._ask(url, proxies, stream, verify, cert)
        return {**self._known[key]}


class LimitedRestCatalog(RestCatalog):
    """pyiceberg's REST catalog with a time limit on every request: requests itself would wait for ever."""

    def __init__(self, connection: Connection) -> None:
        self._timeout = (connection.connect_timeout, connection.read_timeout)
        properties = {"uri": connection.uri, **connection.properties}
        if connection.warehouse is not None:
            properties["warehouse"] = connection.warehouse
        if connection.token is not None:
            properties[TOKEN] = connection.token
        self._own = properties
        super().__init__("lake", **properties)
        # A table without its older snapshots would look as if its history had been expired. The catalog's own
        # configuration, which is among the properties by now, may ask for that too.
        self.properties.pop(SNAPSHOT_LOADING_MODE, None)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = without_code(self.properties, self._own, "/v1/config")

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """As pyiceberg does, but the table's own properties don't say how its files are reached.

        Otherwise, anyone who may alter the table could send our rows elsewhere. Iceberg for Java ignores them as well.
        """
        location, credentials = table_response.metadata_location, table_response.storage_credentials
        whose = f"the catalog's answer for table {'.'.join(identifier_tuple)}"
        for each in credentials:
            refuse_code(each.config, self._own, whose)
        config = without_code(table_response.config, self._own, whose)
        vended = without_code(self._resolve_storage_credentials(credentials, location), self._own, whose)
        return Table(
            identifier_tuple,
            table_response.metadata,
            location,  # type: ignore[arg-type]
            self._load_file_io({**config, **vended}, location),
            self,
            config,
        )

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # pyiceberg asks for credentials of the files by default, and would use them instead of ours.
        if f"header.{_DELEGATION}".lower() not in map(str.lower, self.properties):
            session.headers.pop(_DELEGATION, None)
        # pyiceberg calls this first for each new session, before it asks for a token. A transport adapter with a
        # time limit would not do: the one that signs requests for AWS replaces it.
        session.request = partial(session.request, timeout=self._timeout)  # type: ignore[method-assign]
        session.merge_environment_settings = _Remembered(session)  # type: ignore[method-assign]

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # Without a token pyiceberg would send "Bearer None", even in place of a header from the properties.
        if TOKEN not in self.properties and CREDENTIAL not in self.properties:
            return NoopAuthManager()
        return super()._create_legacy_oauth2_auth_manager(session)
