"""Each stream of the settings, verified."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import time

from lakehouse_ingest.observe.watch import Watch, pushing
from lakehouse_ingest.operations.verify.findings import UNTOLD, Kind, Verdict
from lakehouse_ingest.operations.verify.proof import Recounted, recount
from lakehouse_ingest.operations.verify.table_heads import Names
from lakehouse_ingest.settings import Settings, SourceSettings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import Lake
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.clients import connection_of


@dataclasses.dataclass(frozen=True)
class Verified:
    """One stream; without a verdict the catalog knows nothing of it."""

    name: str
    verdict: Verdict | None

    @property
    def code(self) -> int:
        # Nothing is proven by looking into the wrong namespace.
        return self.verdict.code if self.verdict else UNTOLD


def prove(settings: Settings, jars: Path | None = None) -> list[Verified]:
    with catalog_at(settings, jars) as uri:
        found = [_verified(settings, stream, uri) for stream in settings.streams]
    _push(settings, found)
    return found


def _push(settings: Settings, found: Sequence[Verified]) -> None:
    with pushing(settings, "verify") as watch:
        if watch:
            tell(watch, settings, found)


def tell(watch: Watch, settings: Settings, found: Sequence[Verified]) -> None:
    """Of each stream every kind, so that what is right again is seen to be; nothing of what the catalog knows not."""
    for stream, verdict in zip(settings.streams, (each.verdict for each in found), strict=True):
        name = stream.known_as
        if verdict:
            listed = Counter(each.kind for each in verdict.findings)
            for kind in Kind:
                count = listed[kind] + verdict.unlisted.get(str(kind), 0)
                watch.gauge("lakehouse.verify.findings", count, stream=name, kind=str(kind))
            watch.gauge("lakehouse.verify.timestamp", time(), stream=name)


def _verified(settings: Settings, stream: StreamSettings, uri: str) -> Verified:
    _, found = recounted(settings, stream, uri)
    return Verified(stream.known_as, found.verdict if found else None)


def recounted(settings: Settings, stream: StreamSettings, uri: str) -> tuple[Lake, Recounted | None]:
    """None where the catalog knows nothing of it."""
    identity, namespace = settings.identity_of(stream), settings.catalog.namespace
    names = Names(namespace, f"{namespace}.{settings.ledger.batch_table}", f"{namespace}.{settings.dead_letters.table}")
    lake = Lake(connection_of(settings.catalog, settings.s3, uri), identity)
    found = recount(
        lake,
        identity,
        names,
        partial(_source, settings.source),
        filters=bool(stream.keep_types) or stream.on_error == "ignore",
    )
    return lake, found


def _source(settings: SourceSettings, topics: Sequence[str]) -> Source:
    """With all partitions: some may have been read that are no more."""
    return sources.chosen(settings)(settings.model_copy(update={"partitions": {}}), topics)
