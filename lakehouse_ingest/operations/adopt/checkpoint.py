"""A checkpoint of Spark Structured Streaming: which batch was the last to end, and where the next one begins.

Before Spark runs a batch, it writes to `offsets` where the batch ends. When the batch has ended, it writes to
`commits`. A batch that is only in `offsets` was under way, and may have been committed or not. Iceberg's own sink
writes the query's id and the batch's number into each snapshot, so the table says which.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused, TryAgain
from lakehouse_ingest.ledger import offset_log
from lakehouse_ingest.operations.adopt import Origin, offsets_in

VERSION = "v1"
NOTHING = "-"  # a source without offsets yet
STOPPED = "that the query is stopped for good: we can't fence it"


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    query: str  # its id, which every restart from this checkpoint keeps
    last: int | None  # the newest batch that has ended
    begun: int  # the newest that has begun


def read(folder: Path) -> Checkpoint:
    try:
        query = json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError) as broken:
        raise SettingsRefused(
            f"`--from-checkpoint` {folder} is no checkpoint of a Spark query: it has no `metadata` with an id"
        ) from broken
    begun, ended = (_numbers(folder / name) for name in ("offsets", "commits"))
    if not begun:
        raise SettingsRefused(f"`--from-checkpoint` {folder} holds no batch: its query has read nothing yet")
    last = max(begun & ended, default=None)
    if max(begun) - (-1 if last is None else last) > 1:
        raise NeedsOperator(
            f"the checkpoint {folder.name} has batches {max(begun)} begun and {last} ended, and none between: it was"
            " damaged, or written asynchronously; give --from-file"
        )
    return Checkpoint(folder, query, last, max(begun))


def of_checkpoint(checkpoint: Checkpoint, landed: int | None, *, shown: bool) -> Origin:
    """`landed`: the newest batch of this query in any table; `shown`: whether a table of this very stream shows one."""
    number = ended(checkpoint, landed)
    trusted = [STOPPED]
    if not shown:
        trusted.append("that all records it has read are in the tables: they show no commit of Iceberg's own sink")
    return Origin(
        f"the checkpoint {checkpoint.folder.name} of the Spark query {checkpoint.query}, up to its batch {number}",
        offsets_of(_entry(checkpoint.folder, number), f"batch {number} of the checkpoint"),
        tuple(trusted),
    )


def ended(checkpoint: Checkpoint, landed: int | None) -> int:
    """The batch up to which everything is committed, and nothing beyond it."""
    last, begun = checkpoint.last, checkpoint.begun
    if landed is None and last == begun:
        return begun
    if landed is None:
        raise NeedsOperator(
            f"batch {begun} of the checkpoint was under way, and no table here says whether it was committed: let the"
            " query end it, and stop it when idle; or give --from-file"
        )
    if landed > begun:
        raise NeedsOperator(
            f"a table holds batch {landed} of the query, and the checkpoint ends with {begun}: it is an old copy; give"
            " the one that the query used last"
        )
    if landed < (-1 if last is None else last):
        raise NeedsOperator(
            f"batch {last} of the checkpoint has ended, and the tables end with {landed}: one was rolled back, or the"
            " query fed others; give --from-file"
        )
    return landed


def offsets_of(entry: str, named: str) -> dict[tuple[str, int], int]:
    """Where a batch ends, in all topics that its query reads. These are the offsets of the next records."""
    version, *lines = entry.strip().splitlines()
    if version != VERSION:
        raise NeedsOperator(f"{named} is written in the version {version[:20]}, which is not known: give --from-file")
    found: dict[tuple[str, int], int] = {}
    for line in lines[1:]:
        if line == NOTHING:
            continue
        try:
            offsets = offsets_in(json.loads(line))
        except ValueError:
            offsets = None
        if offsets is None:
            raise NeedsOperator(
                f"{named} is not of Kafka alone ({line[:40]}): the query reads something else too; give --from-file"
            )
        for at, offset in offsets.items():
            if found.setdefault(at, offset) != offset:
                raise NeedsOperator(
                    f"{named} has two places in topic {at[0]} partition {at[1]}, {found[at]} and {offset}: the query"
                    " reads it twice; give --from-file"
                )
    return found


def _numbers(folder: Path) -> set[int]:
    try:
        return {int(file.name) for file in folder.iterdir() if file.name.isdecimal()}
    except OSError:
        return set()


def _entry(folder: Path, number: int) -> str:
    try:
        return offset_log.entry(folder / "offsets", number)
    except TryAgain as broken:  # unlike our own scratch, it can't be made again
        raise NeedsOperator(f"{broken}; give --from-file") from broken
