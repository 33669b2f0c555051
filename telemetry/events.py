"""One event is one log line and its metrics, told together: neither is forgotten, both say the same."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from telemetry.start import Telemetry

NONE: Mapping[str, int] = {}


class Events:
    """What happens to one pipeline. `log` is a structlog logger."""

    def __init__(self, log: Any, telemetry: Telemetry, pipeline: str) -> None:
        self._log = log.bind(pipeline=pipeline)
        self._telemetry = telemetry
        self._pipeline = pipeline

    def started(
        self,
        *,
        stream: str,
        epoch: int,
        topics: Sequence[str],
        tables: int,
        shape: str,
        bad: Mapping[str, Sequence[str]],
    ) -> None:
        """`bad`: the outcomes that its records may have beside landing, each with its reasons.

        What is counted of them begins at zero: no monitor sees an increase in a series whose first value is another.
        """
        self._log.info("started", stream=stream, epoch=epoch, topics=[*topics], tables=tables, shape=shape)
        at = {"pipeline": self._pipeline, "stream": stream}
        self._telemetry.count("lakehouse.batches", 0, outcome="failed", **at)
        for outcome, reasons in bad.items():
            for reason in reasons:
                self._telemetry.count("lakehouse.records", 0, outcome=outcome, reason=reason, **at)

    def batch_landed(
        self,
        *,
        stream: str,
        batch: int,
        received: int,
        duration_s: float,
        landed: Mapping[str, int] = NONE,
        dead: Mapping[str, int] = NONE,
        files: Mapping[str, int] = NONE,
        written: Mapping[str, int] = NONE,
        trimmed: int = 0,
        filtered: int = 0,
        discarded: Mapping[str, int] = NONE,
        freshness_s: float | None = None,
        event_age_s: float | None = None,
        size: int = 0,
        note: str = "",
    ) -> None:
        """`landed`, `files` and the bytes `written` by table, `dead` and `discarded` by reason; `size`: the bytes that
        were received; `note`: why the counts do not add up."""
        at = {"pipeline": self._pipeline, "stream": stream}
        # What is discarded is gone for good, whoever asked for it.
        say = self._log.error if discarded else self._log.warning if dead or note else self._log.info
        counts = {
            "dead": dict(dead),
            "trimmed": trimmed,
            "filtered": filtered,
            "discarded": dict(discarded),
            "note": note,
        }
        say(
            "batch_landed",
            stream=stream,
            batch=batch,
            received=received,
            landed=dict(landed),
            **{outcome: count for outcome, count in counts.items() if count},
            duration_s=round(duration_s, 3),
            **({} if freshness_s is None else {"freshness_s": round(freshness_s, 3)}),
        )
        tell = self._telemetry
        tell.count("lakehouse.batches", 1, outcome="landed", **at)
        tell.record("lakehouse.batch.duration", duration_s, **at)
        for table, rows in landed.items():
            tell.count("lakehouse.records", rows, table=table, outcome="landed", **at)
        for outcome, reasons in (("dead", dead), ("discarded", discarded)):
            for reason, rows in reasons.items():
                tell.count("lakehouse.records", rows, outcome=outcome, reason=reason, **at)
        for outcome, rows in (("trimmed", trimmed), ("filtered", filtered)):
            if rows:
                tell.count("lakehouse.records", rows, outcome=outcome, **at)
        for table, count in files.items():
            tell.count("lakehouse.files", count, pipeline=self._pipeline, table=table)
        tell.count("lakehouse.received", size, **at)
        for table, added in written.items():
            tell.count("lakehouse.written", added, pipeline=self._pipeline, table=table)
        if freshness_s is not None:
            tell.record("lakehouse.freshness", freshness_s, **at)
        if event_age_s is not None:
            tell.gauge("lakehouse.event.age", event_age_s, **at)
        tell.gauge("lakehouse.landed.timestamp", time.time(), **at)

    def batch_failed(self, *, stream: str, batch: int, error: BaseException) -> None:
        """What comes of it is told by what follows: the stream is started again, or has failed."""
        self._log.debug("batch_failed", stream=stream, batch=batch, error=_sentence(error))
        self._telemetry.count("lakehouse.batches", pipeline=self._pipeline, stream=stream, outcome="failed")

    def retrying(self, *, stream: str, attempt: int, wait_s: float, error: BaseException) -> None:
        """The stream is started again after a wait."""
        self._log.warning("retrying", stream=stream, attempt=attempt, wait_s=round(wait_s, 1), error=_sentence(error))
        cause = type(error).__qualname__
        self._telemetry.count("lakehouse.restarts", pipeline=self._pipeline, stream=stream, cause=cause)
        self._count_error(error)

    def stream_failed(self, *, stream: str, error: BaseException) -> None:
        """A stream has ended for good; the others of the pipeline go on."""
        self._log.error("stream_failed", stream=stream, error=_sentence(error))
        self._count_error(error)

    def commit_retried(self, *, table: str, attempt: int, error: BaseException) -> None:
        self._log.warning("commit_retried", table=table, attempt=attempt, error=_sentence(error))
        self._telemetry.count("lakehouse.commit.retries", pipeline=self._pipeline, table=table)

    def commit_reconciled(self, *, table: str) -> None:
        """The answer was lost or untrue; the table shows that the commit has landed."""
        self._log.info("commit_reconciled", table=table)
        self._telemetry.count("lakehouse.commit.reconciled", 1, pipeline=self._pipeline, table=table)

    def superseded(self, error: BaseException) -> None:
        """A newer start of this pipeline has taken over: this one ends."""
        self._log.error("superseded", error=_sentence(error))
        self._count_error(error)

    def schema_changed(self, *, table: str, changes: list[str]) -> None:
        self._log.info("schema_changed", table=table, changes=changes)
        self._telemetry.count("lakehouse.schema.changes", len(changes), pipeline=self._pipeline, table=table)

    def snapshots_expired(self, *, table: str, count: int) -> None:
        self._log.info("snapshots_expired", table=table, count=count)
        self._telemetry.count("lakehouse.snapshots.expired", count, pipeline=self._pipeline, table=table)

    def warned(self, event: str, /, **said: object) -> None:
        """Somebody should look at it, and no other metric counts it."""
        self._log.warning(event, **said)
        self._telemetry.count("lakehouse.warnings", pipeline=self._pipeline, event=event)

    def _count_error(self, error: BaseException) -> None:
        kind = {"error.type": type(error).__qualname__}
        self._telemetry.count("lakehouse.errors", 1, pipeline=self._pipeline, **kind)


def _sentence(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {error}"
