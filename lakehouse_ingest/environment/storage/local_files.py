"""A folder that every part of the pipeline sees under the same path: all clients handle files by themselves."""

from pathlib import Path
from typing import Any

from lakehouse_ingest.errors import LakehouseError, TryAgain, fitted
from lakehouse_ingest.settings import CatalogSettings, S3Settings


class LocalFiles:
    def __init__(self, catalog: CatalogSettings, s3: S3Settings) -> None:
        """It needs no settings."""

    def properties(self, *, keys: bool = True) -> dict[str, str]:  # noqa: ARG002 - there are none
        return {}

    def of_pyiceberg(self) -> dict[str, str]:
        return {}

    def of_embedded(self, *, at_once: bool = False) -> dict[str, str]:  # noqa: ARG002 - files are not tried again
        return {}

    def jars(self, folder: Path | None) -> list[Path]:  # noqa: ARG002 - it lacks none
        return []

    def explained(self, failure: Any, place: str) -> LakehouseError:
        why = " ".join(str(failure.getMessage()).split())
        return TryAgain(fitted(f"`catalog.warehouse` {place} can't be written ({why})"))

    def try_to_write(self, location: str) -> None:
        """Nothing to try: pyiceberg and Spark explain a file that can't be written as well."""
