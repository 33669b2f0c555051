"""The stores of the tables' files, chosen by the scheme of a location: one file each, one line here, imported late.

Another distribution offers a store by an entry point of the group below. The entry point has the name of the scheme and
leads to a class like `Storage`. Such a store finds its settings in `catalog.properties`, which both clients get too.
Jars that Spark lacks are the user's to add. The suite `lakehouse_ingest.testing.storage` proves a store.

A REST catalog says which store a table is on only after it has made the table, because its `warehouse` may be a mere
name. So both clients always get the settings of S3, and those of another store where the warehouse has its scheme.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from lakehouse_ingest import plugins
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.settings import CatalogSettings, S3Settings

STORAGE = {
    "file": "lakehouse_ingest.environment.storage.local_files:LocalFiles",
    "s3": "lakehouse_ingest.environment.storage.s3:S3",
    "s3a": "lakehouse_ingest.environment.storage.s3:S3",
}
GROUP = "lakehouse_ingest.storage"

Properties = Mapping[str, str]


@runtime_checkable
class Storage(Protocol):
    """A kind of store, reached as the settings say. Properties have Iceberg's names."""

    def __init__(self, catalog: CatalogSettings, s3: S3Settings) -> None:
        """Connects to nothing yet."""

    def properties(self, *, keys: bool = True) -> Properties:
        """The properties for every client that reads or writes there; without `keys` none that is secret."""

    def of_pyiceberg(self) -> Properties:
        """Further properties for pyiceberg."""

    def of_embedded(self, *, at_once: bool = False) -> Properties:
        """Further properties for the embedded catalog; with `at_once` it gives up early instead of trying again."""

    def jars(self, folder: Path | None) -> list[Path]:
        """The jars that the embedded catalog lacks; for `folder` see `lakehouse_ingest.environment.jars.ensure`."""

    def explained(self, failure: Any, place: str) -> LakehouseError:
        """Names the setting to fix, from the Java exception that the embedded catalog got when it tried to write."""

    def try_to_write(self, location: str) -> None:
        """Writes an object beside a table and deletes it, if a client is there that explains a refusal well."""


def at(location: str, catalog: CatalogSettings, s3: S3Settings) -> Storage:
    """The store of a location; a path without a scheme is a local file."""
    found = plugins.load("catalog.warehouse", _scheme(location), STORAGE, GROUP, Storage)
    return cast("type[Storage]", found)(catalog, s3)


def known(location: str) -> bool:
    return plugins.offered(_scheme(location), STORAGE, GROUP) is not None


def for_both_clients(catalog: CatalogSettings, s3: S3Settings) -> list[Storage]:
    """The stores whose properties Spark and pyiceberg get."""
    warehouse = catalog.warehouse or ""
    return [at(each, catalog, s3) for each in ("s3://", warehouse) if known(each)]


def _scheme(location: str) -> str:
    found = re.match(r"([A-Za-z][\w+.-]*)://?", location)
    return found[1].lower() if found else "file"
