"""What all models of the settings share."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from lakehouse_ingest.settings.secret_words import HIDDEN, without_login


class SettingsModel(BaseModel):
    """Frozen, without unknown keys, and without secrets in its repr."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Of options and properties only the keys, of addresses neither user nor password."""
        for key, value in super().__repr_args__():
            yield key, dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else without_login(value)
