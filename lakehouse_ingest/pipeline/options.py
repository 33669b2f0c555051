"""The options of one run, beside the settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it loads pyspark, and the command line should not
    from lakehouse_ingest.stages.transforms import Transform


@dataclass(frozen=True)
class RunOptions:
    """Built by the command line or the Python API, and passed on unchanged."""

    until_latest: bool = False  # end when everything that was there at the start is committed
    max_batches: int | None = None  # end when each stream has committed this many batches
    sample: int | None = None  # end when each stream has read this many offsets
    accept_changes: bool = False  # accept changed settings that a running pipeline relies on
    allow_code: bool = False  # allow settings to name code
    transform: "Transform | None" = None  # from the Python API; replaces those of the settings in every stream
    jars: Path | None = None  # a folder with all jars; None: the cache
