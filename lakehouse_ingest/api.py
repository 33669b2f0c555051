"""The pipeline from Python: the commands as functions, and your own transform between decode and shape."""

import os
from pathlib import Path
from threading import Event

from lakehouse_ingest.environment.jars import jars_folder_from
from lakehouse_ingest.environment.proxies import reach_this_machine
from lakehouse_ingest.operations.status import StreamStatus, look
from lakehouse_ingest.operations.verify.streams import Verified, prove
from lakehouse_ingest.pipeline.assembly import foreseen, opened
from lakehouse_ingest.pipeline.dry_run import Foresight
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.settings import Settings, load_settings
from lakehouse_ingest.stages.transforms import Transform, set_aside

__all__ = [
    "Foresight",
    "Settings",
    "StreamStatus",
    "Transform",
    "Verified",
    "load_settings",
    "plan",
    "run",
    "set_aside",
    "status",
    "verify",
]


def run(
    settings: Settings,
    *,
    transform: Transform | None = None,
    until_latest: bool = False,
    max_batches: int | None = None,
    accept_changes: bool = False,
    stop: Event | None = None,
    jars: Path | None = None,
) -> int:
    """Ingest until `stop` is set, or as long as `until_latest` and `max_batches` say.

    Returns the number of committed batches. This sets no signal handler: let your handler of Ctrl-C set `stop`, then
    the batch that is under way is committed first.
    """
    reach_this_machine()
    options = RunOptions(until_latest, max_batches, accept_changes=accept_changes, transform=transform, jars=jars)
    with opened(settings, options, stop) as running:
        running.pipeline.run()
        return running.pipeline.landed


def plan(
    settings: Settings,
    *,
    transform: Transform | None = None,
    sample: int | None = None,
    accept_changes: bool = False,
    jars: Path | None = None,
) -> Foresight:
    """What `run` would change in the catalog. It changes nothing.

    `sample` limits the records that are read of each stream. An error that would keep a stream from starting is in the
    result, and is not raised.
    """
    reach_this_machine()
    jars = jars or jars_folder_from(os.environ)
    return foreseen(settings, RunOptions(sample=sample, accept_changes=accept_changes, transform=transform, jars=jars))


def status(settings: Settings, *, jars: Path | None = None) -> list[StreamStatus]:
    """The state of each stream, as its tables know it."""
    reach_this_machine()
    return look(settings, jars or jars_folder_from(os.environ))


def verify(settings: Settings, *, jars: Path | None = None) -> list[Verified]:
    """Count every stream again from its tables. Losses and duplicates are in the result, and are not raised."""
    reach_this_machine()
    return prove(settings, jars or jars_folder_from(os.environ))
