"""One stream: start from what the tables hold, run Spark's query, and start again after an outage.

There is one way to recover, and every start takes it: read what the tables hold, take the next epoch, and start Spark
at exactly those offsets with a new checkpoint.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.environment.spark_internals import java_process
from lakehouse_ingest.environment.spark_session import session_of_its_own
from lakehouse_ingest.errors import LakehouseError, Superseded, TryAgain
from lakehouse_ingest.observe import span_names
from lakehouse_ingest.observe.events import Fenced, NoTopicYet, PublishesDirectly, ReplicasTakeTurns, Retrying
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Span, Watch
from lakehouse_ingest.pipeline import one_start
from lakehouse_ingest.pipeline.effects import World
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.query_progress import QueryProgress
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.resume import replicas
from lakehouse_ingest.resume.new_topics import refuse_unread
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import PipelineTables


@dataclass
class Stream:
    """One stream of a pipeline; `stop` may be set from any thread or signal handler."""

    settings: Settings
    stream: StreamSettings  # with `topic_pattern`, `topics` holds what the last start found
    spark: SparkSession
    world: World
    watch: Watch
    scratch: Path
    options: RunOptions
    stop: Event
    transform: Transform | None = None
    process: replicas.Process = field(default_factory=replicas.this_process)
    landed: int = 0  # committed batches
    offsets: int = 0  # offsets in these batches
    at: Offsets = field(default_factory=dict)  # all offsets below are committed; empty before the first start
    newest: float | None = None  # the broker's time of the newest committed record
    current: OneStart | None = None  # the start that runs
    progress: QueryProgress | None = None  # of its query, or of the last one
    _lake: PipelineTables | None = None

    @property
    def identity(self) -> str:
        """The ledger name."""
        return self.settings.identity_of(self.stream)

    @property
    def name(self) -> str:
        """The name that people see."""
        return self.stream.known_as

    @property
    def topics(self) -> Sequence[str]:
        return self.stream.topics

    @property
    def has_enough(self) -> bool:
        most, sample = self.options.max_batches, self.options.sample
        return (most is not None and self.landed >= most) or (sample is not None and self.offsets >= sample)

    def run(self) -> None:
        """Run until stopped, drained or done with the batches. Raises what a person has to decide or fix."""
        self.refuse_unread()
        if self.settings.catalog.publish == "direct":
            self.watch.emit(PublishesDirectly(stream=self.name))
        retry = self.settings.retry
        budget = RetryBudget(retry.first, retry.limit)
        while not (self.stop.is_set() or self.has_enough):
            before = self.landed
            budget.begins()
            try:
                if not self.start_once(budget):
                    return
            except Superseded as end:
                self.watch.emit(Fenced(error=end))
                raise
            except (TryAgain, Py4JError, PySparkException, OSError) as error:
                failure = self.explained(error)
                if not isinstance(failure, TryAgain) or self._spark_is_gone():
                    raise failure from error
                again = budget.failed(landed=self.landed > before)
                if again is None:
                    raise TryAgain(f"given up after {retry.limit:.0f} s: {failure}") from failure
                self.watch.emit(Retrying(stream=self.name, attempt=again.attempt, wait_s=again.wait_s, error=failure))
                self.watch.report(self.name, State.WAITING, failure)
                self.stop.wait(again.wait_s)
            finally:
                self.current = None  # it holds the source's clients

    def refuse_unread(self) -> None:
        """Refuse settings about topics that no stream reads."""
        refuse_unread(self.settings.source, self._is_read)

    def start_once(self, budget: RetryBudget) -> bool:
        """Run one start. Returns True if new topics or partitions need another start at once."""
        self.watch.report(self.name, State.STARTING)
        source = self._source()
        if source is None:
            return False
        # Each stream has a pool, so that a busy stream does not keep others waiting. The query inherits it.
        pool = ("spark.scheduler.pool", self.identity)
        self.spark.sparkContext.setLocalProperty(*pool)
        # `begun` measures the start and `ending` cleans up after it. They end at different moments.
        with ExitStack() as ending, ExitStack() as begun:
            span = begun.enter_context(self._begun())
            session = ending.enter_context(session_of_its_own(self.spark))
            with self.watch.span("source.connect", self.name):
                identity = source.identity()
            if not self._may_start(self.lake):
                return False
            self.current = OneStart(self, session, source, identity, self.lake, budget, begun, ending)
            return self.current.run(span)

    @property
    def lake(self) -> PipelineTables:
        self._lake = self._lake or self.world.lake(self.settings, self.identity)
        return self._lake

    def explained(self, failure: BaseException, causes: str = "") -> LakehouseError:
        """The error that says who must act."""
        if isinstance(failure, LakehouseError):
            return failure
        text = f"{spark_errors.whole(failure)}\n{causes}"
        known = spark_errors.of_disk(failure, text, self.scratch) or spark_errors.of_worker(text)
        found = known or TryAgain(spark_errors.first_line(text))
        found.__cause__ = failure
        return found

    def _begun(self) -> AbstractContextManager[Span]:
        reads = span_names.reading(self.settings.source.kind, self.stream.topics, self.identity)
        return self.watch.start(self.name, reads)

    def _may_start(self, lake: PipelineTables) -> bool:
        """Wait first if replicas keep replacing each other. False if the pipeline is to stop instead."""
        if self.options.until_latest or lake.has_claimed:
            return True
        record = f"{self.settings.catalog.namespace}.{self.settings.ledger.batch_table}"
        contest = replicas.contest(lake, record, self.identity, self.process)
        if contest is None:
            return True
        self.watch.emit(ReplicasTakeTurns(stream=self.name, wait_s=contest.wait_s, error=contest.sentence))
        self.watch.board.report(self.name, State.WAITING, contest.sentence)
        stopped = self.stop.wait(contest.wait_s)
        self.watch.report(self.name, State.STARTING)
        return not stopped

    def _source(self) -> Source | None:
        """The source with its current topics. With `topic_pattern`, wait for the first match; None if the run ends."""
        kind, pattern = sources.chosen(self.settings.source), self.stream.topic_pattern
        if not pattern:
            return kind(self.settings.source, self.stream.topics)
        everything, reported = kind(self.settings.source, ()), False
        while not (found := everything.matching(pattern)):
            if not reported:
                self.watch.emit(NoTopicYet(stream=self.name, topic_pattern=pattern))
            reported = True
            self.watch.board.report(self.name, State.STARTING, f"no topic matches {pattern} yet")
            if self.options.until_latest or self.stop.wait(one_start.TOPICS_S):
                return None
        self.stream = self.stream.model_copy(update={"topics": tuple(found)})
        return kind(self.settings.source, found)

    def _is_read(self, topic: str) -> bool:
        """True if any stream of the pipeline may read the topic."""
        return any(
            re.fullmatch(each.topic_pattern, topic) if each.topic_pattern else topic in each.topics
            for each in self.settings.streams
        )

    def _spark_is_gone(self) -> bool:
        """True if the Java process has ended, so that a retry is pointless."""
        process = java_process(self.spark)
        return process is not None and process.poll() is not None
