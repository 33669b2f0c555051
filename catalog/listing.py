"""Lists the files of a table for engines that read files only: manifest by manifest, never all at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from catalog.connection import CatalogClient
from catalog.errors import RequestRefused

_CONTENT = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True)
class LiveFile:
    """A file that a snapshot refers to."""

    path: str
    partition: Mapping[str, str | None]  # by the partition field's name; text as in a directory's name
    rows: int
    bytes: int
    format: str
    content: str = "data"  # or "position deletes", "equality deletes": they delete rows of other files


def live_files(
    client: CatalogClient, name: str, snapshot: int | None = None, *, deletes: bool = False
) -> Iterator[LiveFile]:
    """List the files of main's head, or of another snapshot.

    Raises RequestRefused if delete files remove rows of them: a reader of the data files alone would see those
    rows. With `deletes` such files are listed too. Raises FileMissing if a manifest is gone.
    """
    table = client.table(name)
    found = _snapshot(table, name, snapshot)
    if found is None:
        return
    with client.reading(found.manifest_list, name):
        manifests = found.manifests(table.io)
    removing = [each for each in manifests if each.content == ManifestContent.DELETES and _is_alive(each)]
    if removing and not deletes:
        raise RequestRefused(
            f"rows of table {name} are deleted by files beside its data files, and who reads files alone would see"
            " them: compact it first, or ask for those files too"
        )
    for manifest in [*(each for each in manifests if each.content == ManifestContent.DATA), *removing]:
        with client.reading(manifest.manifest_path, name):
            entries = manifest.fetch_manifest_entry(table.io)
        spec = table.specs()[manifest.partition_spec_id]
        for entry in entries:
            yield _file(entry.data_file, spec, table.schema())


def _snapshot(table: Table, name: str, number: int | None) -> Snapshot | None:
    if number is None:
        # Without main the table has no rows yet, even if a branch exists.
        return table.current_snapshot() if MAIN_BRANCH in table.metadata.refs else None
    if (found := table.snapshot_by_id(number)) is None:
        raise RequestRefused(f"the table {name} has no snapshot {number}: it has been expired, or there never was one")
    return found


def _is_alive(manifest: ManifestFile) -> bool:
    # Older writers do not count the files, so there may be some.
    return manifest.has_added_files() or manifest.has_existing_files()


def _file(file: DataFile, spec: PartitionSpec, schema: Schema) -> LiveFile:
    types = spec.partition_type(schema).fields
    partition = {
        field.name: None if value is None else field.transform.to_human_string(kind.field_type, value)
        for position, (field, kind) in enumerate(zip(spec.fields, types, strict=True))
        for value in [file.partition[position]]
    }
    return LiveFile(
        file.file_path,
        partition,
        file.record_count,
        file.file_size_in_bytes,
        file.file_format.value.lower(),
        _CONTENT[file.content],
    )
