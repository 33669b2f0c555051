"""Where a pipeline was when it was killed, told from what it left behind."""

from collections.abc import Iterable
from pathlib import Path

from lakehouse_ingest.ledger.keys import TOKEN
from tests.services.pipelines import Running, until
from tests.services.readers import Reader

STARTING, ELSEWHERE = "while starting", "between landings"
# The two that lie between the first data file of a batch and its publication; and the one in the middle of it.
WRITING, STAGED = "while a file was written", "after staging, before publication"
PARTLY = "after publication of some tables, before others"


def where(running: Running, reader: Reader, tables: Iterable[str], begun: set[Path]) -> str:
    """By the evidence: files that were there before the kill, and that main does not know after it."""
    assert until(lambda: not running.family(), 60), "the JVM outlived its Python"  # and may have staged meanwhile
    there = [kind for kind in tables if reader.exists(kind)]
    if begun.issubset({file for kind in there for file in reader.files_of_main(kind)}):
        return ELSEWHERE if running.events("started") else STARTING
    staged = {_token(reader, kind, snapshot) for kind in there for snapshot in reader.staged(kind)}
    published = {_token(reader, kind, snapshot) for kind in there for snapshot in reader.main(kind)[:1]}
    if staged & published:
        return PARTLY
    return STAGED if staged else WRITING


def _token(reader: Reader, name: str, snapshot: int) -> str | None:
    found = reader.table(name).snapshot_by_id(snapshot)
    assert found
    assert found.summary
    return found.summary[TOKEN]
