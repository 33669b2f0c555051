"""Where a pipeline was when it was killed, told from what it left behind."""

from collections.abc import Iterable
from pathlib import Path

from catalog import FileNames
from lakehouse_ingest.ledger.keys import TOKEN
from tests.services.pipelines import Running, until
from tests.services.readers import Reader, is_whole

STARTING, ELSEWHERE = "while starting", "between batches"
# The two that lie between the first data file of a batch and its first commit; and the one after that.
WRITING, STAGED = "while a file was written", "after the files were written, before a commit"
PARTLY = "after the commit of some tables, before others"


def where(running: Running, reader: Reader, tables: Iterable[str], begun: set[Path]) -> str:
    """By the evidence: files that were there before the kill, and that main does not know after it."""
    assert until(lambda: not running.family(), 60), "the JVM or a worker outlived its Python"
    there = [kind for kind in tables if reader.exists(kind)]
    left = begun - {file for kind in there for file in reader.files_of_main(kind)}
    if not left:
        return ELSEWHERE if running.events("started") else STARTING
    committed = {_batch(reader, kind) for kind in there if reader.main(kind)}
    if committed & {_batch_of(file) for file in left}:
        return PARTLY
    return STAGED if all(is_whole(file) for file in left) else WRITING


def _batch_of(file: Path) -> tuple[str, int, int]:
    names = FileNames.of(str(file))
    assert names, file
    return names.pipeline, names.epoch, names.batch


def _batch(reader: Reader, table: str) -> tuple[str, int, int] | None:
    """The batch that main's head has. A start that publishes directly has opened the table with a head without one."""
    found = reader.table(table).current_snapshot()
    assert found
    assert found.summary
    token = found.summary.additional_properties.get(TOKEN)
    if token is None:
        return None
    pipeline, _, epoch, batch = token.rsplit("/", 3)
    return pipeline, int(epoch), int(batch)
