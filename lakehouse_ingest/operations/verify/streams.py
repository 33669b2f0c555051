"""Each stream of the settings, verified."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import time

from lakehouse_ingest.observe.watch import Watch, pushing
from lakehouse_ingest.operations.verify.findings import UNTOLD, FindingKind, StreamVerdict
from lakehouse_ingest.operations.verify.stream_verification import Verification, verify_stream
from lakehouse_ingest.operations.verify.table_heads import TableNames
from lakehouse_ingest.settings import Settings, SourceSettings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import PipelineTables
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.pipeline_tables import tables_of


@dataclasses.dataclass(frozen=True)
class Verified:
    """One stream. It has no verdict if the catalog knows nothing of it."""

    name: str
    verdict: StreamVerdict | None

    @property
    def code(self) -> int:
        # A catalog that knows nothing of a stream proves nothing: the namespace may be the wrong one.
        return self.verdict.code if self.verdict else UNTOLD


def prove(settings: Settings, jars: Path | None = None) -> list[Verified]:
    with catalog_at(settings, jars) as uri:
        return of_streams(settings, uri)


def of_streams(settings: Settings, uri: str) -> list[Verified]:
    """Verifies every stream by the catalog at this address, and pushes what was found as metrics."""
    found = [_verified(settings, stream, uri) for stream in settings.streams]
    with pushing(settings, "verify") as watch:
        if watch:
            report(watch, settings, found)
    return found


def report(watch: Watch, settings: Settings, found: Sequence[Verified]) -> None:
    """Sets a gauge for every kind of finding, zeros too, so that what was fixed is seen. Skips unknown streams."""
    for stream, verdict in zip(settings.streams, (each.verdict for each in found), strict=True):
        name = stream.known_as
        if verdict:
            listed = Counter(each.kind for each in verdict.findings)
            for kind in FindingKind:
                count = listed[kind] + verdict.unlisted.get(str(kind), 0)
                watch.gauge("lakehouse.verify.findings", count, stream=name, kind=str(kind))
            watch.gauge("lakehouse.verify.timestamp", time(), stream=name)


def _verified(settings: Settings, stream: StreamSettings, uri: str) -> Verified:
    _, found = verification_of(settings, stream, uri)
    return Verified(stream.known_as, found.verdict if found else None)


def verification_of(settings: Settings, stream: StreamSettings, uri: str) -> tuple[PipelineTables, Verification | None]:
    """None if the catalog knows nothing of the stream."""
    identity = settings.identity_of(stream)
    names = TableNames(settings.catalog.namespace, settings.batch_log, settings.dead_letter_table)
    lake = tables_of(settings, uri, stream)
    found = verify_stream(
        lake,
        identity,
        names,
        partial(_source, settings.source),
        filters=bool(stream.keep_types) or stream.on_error == "ignore",
    )
    return lake, found


def _source(settings: SourceSettings, topics: Sequence[str]) -> Source:
    """The source with all partitions: a stream may have read some that its settings no longer name."""
    return sources.chosen(settings)(settings.model_copy(update={"partitions": {}}), topics)
