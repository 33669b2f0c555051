"""What `verify` says of tables that a real pipeline has filled from a real broker, and others have changed."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakehouse_ingest.operations.verify.findings import Finding, FindingKind, StreamVerdict
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.settings import Settings
from tests.services.ingesting import Bench

MADE = 1_750_000_000_000


def verdict_on(settings: Settings) -> StreamVerdict:
    (found,) = prove(settings)
    assert found.verdict
    check_sum(found.verdict)
    assert found.code == found.verdict.code
    return found.verdict


def check_sum(verdict: StreamVerdict) -> None:
    """Each offset is somewhere in the sentence, once."""
    elsewhere = verdict.filtered + verdict.discarded + verdict.removed + verdict.holes + verdict.holes_recorded
    rows = sum(verdict.tables.values()) + verdict.dead - verdict.duplicates
    assert verdict.offsets == rows + elsewhere + verdict.lost + verdict.unknown, verdict


def only(verdict: StreamVerdict, kind: FindingKind) -> Finding:
    (found,) = [each for each in verdict.findings if each.kind is kind]
    assert len(found.says) <= 200
    return found


def kinds(verdict: StreamVerdict) -> set[FindingKind]:
    return {each.kind for each in verdict.findings}


def span(finding: Finding) -> tuple[str | None, int | None, int | None, int | None]:
    return finding.topic, finding.partition, finding.first, finding.last


def numbered(numbers: Iterable[int]) -> Iterator[tuple[None, bytes]]:
    return ((None, json.dumps({"n": n, "ts_ms": MADE + n}).encode()) for n in numbers)


@dataclass(frozen=True)
class Landed:
    """What a pipeline has left in its tables; whatever a test does to these is undone after it."""

    settings: Settings
    topic: str

    def name(self, table: str = "") -> str:
        return f"ns_{self.topic}.{table or self.topic}"


@contextmanager
def undone(bench: Bench, landed: Landed) -> Iterator[None]:
    names = [".".join(name) for name in bench.lake.list_tables(f"ns_{landed.topic}")]
    heads = {name: table.metadata.current_snapshot_id for name in names if (table := bench.table(name))}
    yield
    for name, head in heads.items():
        if head is not None and bench.table(name).metadata.current_snapshot_id != head:
            bench.table(name).manage_snapshots().set_current_snapshot(head).commit()


def landings(bench: Bench, name: str) -> list[int]:
    """Main's snapshots that added rows, newest first."""
    return [each.snapshot_id for each in bench.published(name) if each.summary["added-records"] not in (None, "0")]
