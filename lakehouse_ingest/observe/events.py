"""Everything that a pipeline reports: one frozen dataclass for each event, with its log line and its metrics.

`watch.emit(BatchLanded(...))` hands an event to all listeners: the log, the metrics, the status page, and what a
terminal shows. The fields are the log line, unless `line` says otherwise. `name` is the event's name in the log; alerts
and people look for it, so a name that was released stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time

from telemetry import Event, Level, Meter

Counts = Mapping[str, int]


# -- batches ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BatchLanded(Event, name="batch_landed"):
    """All records of a batch have their outcome.

    `landed`, `files` and the bytes `written` are by table, `dead` and `discarded` by reason. `size` is the bytes that
    were received. `note` says why the counts do not add up.
    """

    stream: str
    batch: int
    received: int
    duration_s: float
    landed: Counts = field(default_factory=dict)
    dead: Counts = field(default_factory=dict)
    files: Counts = field(default_factory=dict)
    written: Counts = field(default_factory=dict)
    trimmed: int = 0
    filtered: int = 0
    discarded: Counts = field(default_factory=dict)
    freshness_s: float | None = None
    event_age_s: float | None = None
    size: int = 0
    note: str = ""

    @property
    def level(self) -> Level:
        # What is discarded is gone for good, even if somebody asked for it.
        return "error" if self.discarded else "warning" if self.dead or self.note else "info"

    @property
    def landed_records(self) -> int:
        return sum(self.landed.values())

    @property
    def dead_records(self) -> int:
        return sum(self.dead.values())

    @property
    def discarded_records(self) -> int:
        return sum(self.discarded.values())

    def line(self) -> dict[str, object]:
        """Outcomes that no record had are left out, and so is what only metrics need."""
        said = super().line()
        always = ("stream", "batch", "received", "landed", "duration_s", "freshness_s")
        if_any = ("dead", "trimmed", "filtered", "discarded", "note")
        return {name: value for name, value in said.items() if name in always or (name in if_any and value)}

    def measure(self, to: Meter) -> None:
        at = {"stream": self.stream}
        to.count("lakehouse.batches", 1, outcome="landed", **at)
        to.record("lakehouse.batch.duration", self.duration_s, **at)
        to.count("lakehouse.received", self.size, **at)
        self._count_records(to)
        for table, files in self.files.items():
            to.count("lakehouse.files", files, table=table)
        for table, added in self.written.items():
            to.count("lakehouse.written", added, table=table)
        if self.freshness_s is not None:
            to.record("lakehouse.freshness", self.freshness_s, **at)
        if self.event_age_s is not None:
            to.gauge("lakehouse.event.age", self.event_age_s, **at)
        to.gauge("lakehouse.landed.timestamp", time(), **at)

    def _count_records(self, to: Meter) -> None:
        """Each record once, under its outcome."""
        at = {"stream": self.stream}
        for table, rows in self.landed.items():
            to.count("lakehouse.records", rows, table=table, outcome="landed", **at)
        for outcome, reasons in (("dead", self.dead), ("discarded", self.discarded)):
            for reason, rows in reasons.items():
                to.count("lakehouse.records", rows, outcome=outcome, reason=reason, **at)
        for outcome, rows in (("trimmed", self.trimmed), ("filtered", self.filtered)):
            if rows:
                to.count("lakehouse.records", rows, outcome=outcome, **at)


@dataclass(frozen=True, kw_only=True)
class FailedBatch(Event, name="batch_failed", level="debug"):
    """The event that follows says what comes of it: the stream is started again, or has failed."""

    stream: str
    batch: int
    error: BaseException

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.batches", 1, outcome="failed", stream=self.stream)


# -- starts and ends of a stream --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Started(Event, name="started", level="info"):
    """A stream's query runs. `bad`: the outcomes other than `landed` that its records may have, with their reasons."""

    stream: str
    epoch: int
    topics: Sequence[str]
    tables: int
    bad: Mapping[str, Sequence[str]]

    def line(self) -> dict[str, object]:
        said = super().line()
        del said["bad"]
        return said

    def measure(self, to: Meter) -> None:
        """Counters begin at zero: a monitor sees no increase in a series whose first value is another."""
        to.count("lakehouse.batches", 0, outcome="failed", stream=self.stream)
        for outcome, reasons in self.bad.items():
            for reason in reasons:
                to.count("lakehouse.records", 0, outcome=outcome, reason=reason, stream=self.stream)


def _count_error(to: Meter, error: BaseException) -> None:
    to.count("lakehouse.errors", 1, **{"error.type": type(error).__qualname__})


@dataclass(frozen=True, kw_only=True)
class Retrying(Event, name="retrying", level="warning"):
    """The stream is started again after a wait."""

    stream: str
    attempt: int
    wait_s: float
    error: BaseException

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.restarts", 1, stream=self.stream, cause=type(self.error).__qualname__)
        _count_error(to, self.error)


@dataclass(frozen=True, kw_only=True)
class StreamFailed(Event, name="stream_failed", level="error"):
    """A stream has ended for good; the others of the pipeline go on."""

    stream: str
    error: BaseException

    def measure(self, to: Meter) -> None:
        _count_error(to, self.error)


@dataclass(frozen=True, kw_only=True)
class Fenced(Event, name="superseded", level="error"):
    """A newer start of this pipeline has fenced this one, which ends."""

    error: BaseException

    def measure(self, to: Meter) -> None:
        _count_error(to, self.error)


@dataclass(frozen=True, kw_only=True)
class Stopped(Event, name="stopped", level="info"):
    """The pipeline has ended as it was asked to."""

    batches: int


# -- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CommitRetried(Event, name="commit_retried", level="warning"):
    """The commit of somebody else came first."""

    table: str
    attempt: int
    error: BaseException

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.commit.retries", 1, table=self.table)


@dataclass(frozen=True, kw_only=True)
class CommitReconciled(Event, name="commit_reconciled", level="info"):
    """The catalog's answer was lost or wrong; the table shows that the commit was done."""

    table: str

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.commit.reconciled", 1, table=self.table)


@dataclass(frozen=True, kw_only=True)
class SchemaChanged(Event, name="schema_changed", level="info"):
    table: str
    changes: Sequence[str]

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.schema.changes", len(self.changes), table=self.table)


@dataclass(frozen=True, kw_only=True)
class SnapshotsExpired(Event, name="snapshots_expired", level="info"):
    table: str
    count: int

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.snapshots.expired", self.count, table=self.table)


# -- warnings that no other metric counts -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Warned(Event, level="warning"):
    """Somebody should look at it. Its name has to be in `telemetry.instruments.WARNINGS`."""

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.warnings", 1, event=self.name)


@dataclass(frozen=True, kw_only=True)
class BatchesReduced(Warned, name="batches_reduced"):
    stream: str
    max_records: int
    advice: str


@dataclass(frozen=True, kw_only=True)
class CatalogHardToTry(Warned, name="catalog_hard_to_try"):
    """The catalog enforces what commits rely on, but it could not be tried as it should be."""

    stream: str
    error: str


@dataclass(frozen=True, kw_only=True)
class FenceNotMoved(Warned, name="fence_not_moved"):
    """The fence of an idle table keeps files alive that a compaction has replaced. It is tried again an hour later."""

    table: str
    error: str


@dataclass(frozen=True, kw_only=True)
class GroupOffsetsNotPublished(Warned, name="group_offsets_not_published"):
    error: str


@dataclass(frozen=True, kw_only=True)
class ManyFiles(Warned, name="many_files"):
    """One batch has written more data files to a table than its readers should have to open."""

    table: str
    files: int
    rows: int
    advice: str


@dataclass(frozen=True, kw_only=True)
class MemoryShort(Warned, name="memory_short"):
    """All tasks together may need more memory than this machine or container has."""

    has: str
    needs: str
    tasks: int
    advice: str


@dataclass(frozen=True, kw_only=True)
class MetadataNotMeasured(Warned, name="metadata_not_measured"):
    table: str
    error: str


@dataclass(frozen=True, kw_only=True)
class ReplicasTakeTurns(Warned, name="replicas_take_turns"):
    """Two processes with the same ledger name fence each other again and again."""

    stream: str
    wait_s: float
    error: str


@dataclass(frozen=True, kw_only=True)
class SettingsChanged(Warned, name="settings_changed"):
    stream: str
    change: str


@dataclass(frozen=True, kw_only=True)
class SettingsNotReadAgain(Warned, name="settings_not_read_again"):
    """Somebody asked for a new log level, and the settings were refused."""

    error: str


@dataclass(frozen=True, kw_only=True)
class SnapshotsNotExpired(Warned, name="snapshots_not_expired"):
    table: str
    error: str


@dataclass(frozen=True, kw_only=True)
class TablesPassedOver(Warned, name="tables_passed_over"):
    """Tables of the namespace that could not be read while the stream looked for its own."""

    stream: str
    tables: Sequence[str]
    error: str


@dataclass(frozen=True, kw_only=True)
class TasksWait(Warned, name="tasks_wait"):
    """A cluster runs none of our tasks, and so no batch goes on."""

    master: str
    waiting: int
    executors: int
    error: str


@dataclass(frozen=True, kw_only=True)
class TransactionHangs(Warned, name="transaction_hangs"):
    stream: str
    topic: str
    partition: int
    offset: int
    error: str


@dataclass(frozen=True, kw_only=True)
class VariableNotRead(Warned, name="variable_not_read"):
    """A variable of the environment that looks like one of ours, and is not."""

    variable: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class SparkLine(Warned, name="spark"):
    """A line of Spark's Java process. One without a `logger` was only printed there, and is not counted."""

    severity: Level
    logger: str
    text: str

    @property
    def level(self) -> Level:
        return self.severity

    def line(self) -> dict[str, object]:
        return {"line": self.text, **({"logger": self.logger} if self.logger else {})}

    def measure(self, to: Meter) -> None:
        if self.logger and self.severity in ("warning", "error"):
            super().measure(to)


# -- the process ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CatalogServes(Event, name="catalog_serves", level="info"):
    """The embedded catalog answers."""

    uri: str
    warehouse: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class HealthServes(Event, name="health_serves", level="info"):
    """The status page and its neighbours answer."""

    url: str


@dataclass(frozen=True, kw_only=True)
class PublishesDirectly(Event, name="publishes_directly", level="info"):
    """The stream writes to the branch `main` without a branch of its own."""

    stream: str


@dataclass(frozen=True, kw_only=True)
class NoTopicYet(Event, name="no_topic_yet", level="info"):
    stream: str
    topic_pattern: str


@dataclass(frozen=True, kw_only=True)
class LogLevelChanged(Event, name="log_level", level="warning"):
    """At the level `warning`, so that it is seen in any case."""

    to: Level
    other_changes: str | None = None


@dataclass(frozen=True, kw_only=True)
class LookFailed(Event, name="look_failed", level="debug"):
    """Lag and process figures could not be sampled this time."""

    error: BaseException
    took_s: float
