"""What a person says of one run, beside the settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it loads pyspark, and the command line should not
    from lakehouse_ingest.stages.transforms import Transform


@dataclass(frozen=True)
class RunOptions:
    """Made where the words are read, and carried whole from there."""

    until_latest: bool = False  # end when all that is there at the start has landed
    max_batches: int | None = None  # end when each stream has landed so many
    sample: int | None = None  # end when each stream has read so many offsets
    accept_changes: bool = False  # of settings that a running pipeline relies on
    allow_code: bool = False  # settings may name code
    transform: "Transform | None" = None  # of Python's API: for every stream, instead of those that the settings name
    jars: Path | None = None  # a folder with all of them; none: the cache
