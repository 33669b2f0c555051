"""Where the tables' files are, by the scheme of their location: one file each, one line here, imported when chosen.

Another distribution offers its own by an entry point of the group below that is named after the scheme: a class like
`Storage`. What it has to know stands in `catalog.properties`, which go to both clients as well; jars that Spark lacks
are the user's to add. `lakehouse_ingest.testing.storage` proves it.

Which store a table is on, a REST catalog tells only when it has made the table: its `warehouse` may be a mere name. So
what is set of S3 is told to both clients in any case, and that of another store where the warehouse has its scheme.
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
    """A kind of store, as the settings say to reach it. Properties are in Iceberg's words."""

    def __init__(self, catalog: CatalogSettings, s3: S3Settings) -> None:
        """Asks nobody yet."""

    def properties(self, *, keys: bool = True) -> Properties:
        """What everybody is told who reads or writes there; without `keys` nothing that is secret."""

    def of_pyiceberg(self) -> Properties:
        """What it is told besides."""

    def of_embedded(self, *, at_once: bool = False) -> Properties:
        """What the embedded catalog is told besides; `at_once`: so that it does not try again for long."""

    def jars(self, folder: Path | None) -> list[Path]:
        """What the embedded catalog lacks; for `folder` see `lakehouse_ingest.environment.jars.ensure`."""

    def explained(self, failure: Any, place: str) -> LakehouseError:
        """Which setting to mend, by the exception of Java's that the embedded catalog got when it tried to write."""

    def try_to_write(self, location: str) -> None:
        """An object beside a table, there and away again, by the client that says best what is refused; if any."""


def at(location: str, catalog: CatalogSettings, s3: S3Settings) -> Storage:
    """That of a location; a path without a scheme is one of files."""
    found = plugins.load("catalog.warehouse", _scheme(location), STORAGE, GROUP, Storage)
    return cast("type[Storage]", found)(catalog, s3)


def known(location: str) -> bool:
    return plugins.offered(_scheme(location), STORAGE, GROUP) is not None


def told(catalog: CatalogSettings, s3: S3Settings) -> list[Storage]:
    """Those that both clients have to know."""
    warehouse = catalog.warehouse or ""
    return [at(each, catalog, s3) for each in ("s3://", warehouse) if known(each)]


def _scheme(location: str) -> str:
    found = re.match(r"([A-Za-z][\w+.-]*)://?", location)
    return found[1].lower() if found else "file"
