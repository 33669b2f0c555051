"""What every store promises, of a place there that may be written. `folder` is an empty one of this machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr
from pyiceberg.io import load_file_io

from lakehouse_ingest.environment.storage import Storage
from lakehouse_ingest.errors import LONGEST, LakehouseError
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables import PipelineTables
from lakehouse_ingest.tables.clients import connection_of, embedded

SUITE = "suite"


@dataclass(frozen=True)
class Place:
    """Where the suite may write, and the settings that let it in."""

    kind: type[Storage]
    location: str  # with its scheme
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    s3: S3Settings = field(default_factory=S3Settings)
    embedded: bool = True  # whether the embedded catalog puts its tables there; if not, they are in its folder
    nowhere: str = ""  # a place of the store that is not there
    jars: Path | None = None

    @property
    def storage(self) -> Storage:
        return self.kind(self.catalog, self.s3)

    def warehouse(self, folder: Path, place: str) -> CatalogSettings:
        return self.catalog.model_copy(update={"path": folder, "warehouse": place if self.embedded else None})


def without_keys_no_secret_is_told(place: Place, _folder: Path) -> None:
    secrets = {each.get_secret_value() for _, each in place.s3 if isinstance(each, SecretStr)}
    told = place.storage.properties(keys=False)
    assert not secrets & {*told.values()}, f"a secret is among {sorted(told)}"
    assert all(isinstance(each, str) for each in told.values()), "a property is no text"


def pyiceberg_writes_reads_and_deletes_there(place: Place, _folder: Path) -> None:
    files = load_file_io({**place.storage.properties(), **place.storage.of_pyiceberg()}, place.location)
    path = f"{place.location}/{uuid4().hex}"
    with files.new_output(path).create() as written:
        written.write(b"suite")
    with files.new_input(path).open() as read:
        found = read.read()
    assert found == b"suite", f"what was written reads back as {found!r}"
    files.delete(path)
    assert not files.new_input(path).exists(), "what was deleted is there still"


def a_try_to_write_passes(place: Place, _folder: Path) -> None:
    place.storage.try_to_write(place.location)


def the_embedded_catalog_serves_tables_there(place: Place, folder: Path) -> None:
    settings = place.warehouse(folder, place.location)
    with embedded(settings, place.s3, place.jars, 0) as server:
        assert server.uri
        lake = PipelineTables(connection_of(settings, place.s3, server.uri), SUITE)
        with lake.probe(SUITE) as (table, location):
            lake.write_and_read(table)
        scheme = place.location.partition(":")[0]
        assert location.startswith(f"{scheme}:"), f"the table is at {location}"


def a_place_that_is_not_there_is_one_sentence(place: Place, folder: Path) -> None:
    if not place.nowhere:
        return
    try:
        with embedded(place.warehouse(folder, place.nowhere), place.s3, place.jars, 0):
            pass
    except LakehouseError as refusal:
        said = str(refusal)
        assert "`" in said, f"no setting is named: {said}"
        assert len(said) <= LONGEST, f"{len(said)} characters are too many: {said}"
    else:
        raise AssertionError(f"the embedded catalog serves {place.nowhere}")


Check = Callable[[Place, Path], None]
CHECKS: tuple[Check, ...] = (
    without_keys_no_secret_is_told,
    pyiceberg_writes_reads_and_deletes_there,
    a_try_to_write_passes,
    the_embedded_catalog_serves_tables_there,
    a_place_that_is_not_there_is_one_sentence,
)
