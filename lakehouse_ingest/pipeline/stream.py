"""One stream: it begins from the tables, lets Spark take what is there, and begins again when a dependency broke.

There is one way to recover, and it is the way of every start: read what the tables hold, take the next epoch,
start Spark at exactly those offsets with a new checkpoint.
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
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.pipeline.sampler import QueryProgress
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
    stream: StreamSettings  # with a pattern: and the topics that the last start has found
    spark: SparkSession
    world: World
    watch: Watch
    scratch: Path
    options: RunOptions
    stop: Event
    transform: Transform | None = None
    process: replicas.Process = field(default_factory=replicas.this_process)
    landed: int = 0  # batches
    offsets: int = 0  # in them
    at: Offsets = field(default_factory=dict)  # all below has landed; empty before the first start
    newest: float | None = None  # the broker's time of the newest record that has landed here
    current: OneStart | None = None  # the start that runs, or the last one
    _lake: PipelineTables | None = None

    @property
    def identity(self) -> str:
        """Its name in the ledger."""
        return self.settings.identity_of(self.stream)

    @property
    def name(self) -> str:
        """As people know it."""
        return self.stream.known_as

    @property
    def topics(self) -> Sequence[str]:
        return self.stream.topics

    @property
    def progress(self) -> QueryProgress | None:
        """Of the query that runs."""
        return self.current.progress if self.current else None

    @property
    def has_enough(self) -> bool:
        most, sample = self.options.max_batches, self.options.sample
        return (most is not None and self.landed >= most) or (sample is not None and self.offsets >= sample)

    def run(self) -> None:
        """Returns when stopped, drained or done with its batches; raises what a person has to settle."""
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
            except (TryAgain, Py4JError, PySparkException, ConnectionError) as error:
                failure = self.explained(error)
                if not isinstance(failure, TryAgain) or self._spark_is_gone():
                    raise failure from error
                again = budget.failed(landed=self.landed > before)
                if again is None:
                    raise TryAgain(f"given up after {retry.limit:.0f} s: {failure}") from failure
                self.watch.emit(Retrying(stream=self.name, attempt=again.attempt, wait_s=again.wait_s, error=failure))
                self.watch.report(self.name, State.WAITING, failure)
                self.stop.wait(again.wait_s)

    def refuse_unread(self) -> None:
        """Refuse settings about topics that no stream reads."""
        refuse_unread(self.settings.source, self._is_read)

    def start_once(self, budget: RetryBudget) -> bool:
        """Whether another start has to follow at once: there are topics or partitions that this one does not read."""
        self.watch.report(self.name, State.STARTING)
        source = self._source()
        if source is None:
            return False
        # A pool for each stream: one with much to do must not keep another waiting. The query inherits it.
        pool = ("spark.scheduler.pool", self.identity)
        self.spark.sparkContext.setLocalProperty(*pool)
        # A start that ends before its query runs has no stop.
        with ExitStack() as ending, ExitStack() as begun:
            span = begun.enter_context(self._begun())
            session = ending.enter_context(session_of_its_own(self.spark))
            with self.watch.span("source.connect", self.name):
                identity = source.identity()
            if not self._lets_others_land(self.lake):
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
        said = f"{spark_errors.whole(failure)}\n{causes}"
        source = sources.chosen(self.settings.source)
        found = (
            source.explained(said, self.settings.source)
            or spark_errors.of_disk(said, self.scratch)
            or TryAgain(spark_errors.first_line(said))
        )
        found.__cause__ = failure
        return found

    def _begun(self) -> AbstractContextManager[Span]:
        reads = span_names.reading(self.settings.source.kind, self.stream.topics, self.identity)
        return self.watch.start(self.name, reads)

    def _lets_others_land(self, lake: PipelineTables) -> bool:
        """Waits where replicas replace each other; False: it is to stop instead."""
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
        """The topics as they are now, one of which a pattern waits for. None: it ends before there is one."""
        kind, pattern = sources.chosen(self.settings.source), self.stream.topic_pattern
        if not pattern:
            return kind(self.settings.source, self.stream.topics)
        everything, told = kind(self.settings.source, ()), False
        while not (found := everything.matching(pattern)):
            if not told:
                self.watch.emit(NoTopicYet(stream=self.name, topic_pattern=pattern))
            told = True
            self.watch.board.report(self.name, State.STARTING, f"no topic matches {pattern} yet")
            if self.options.until_latest or self.stop.wait(one_start.TOPICS_S):
                return None
        self.stream = self.stream.model_copy(update={"topics": tuple(found)})
        return kind(self.settings.source, found)

    def _is_read(self, topic: str) -> bool:
        """Whether any stream of the pipeline may read it."""
        return any(
            re.fullmatch(each.topic_pattern, topic) if each.topic_pattern else topic in each.topics
            for each in self.settings.streams
        )

    def _spark_is_gone(self) -> bool:
        """Whether there is no Java process any more to try it with."""
        process = java_process(self.spark)
        return process is not None and process.poll() is not None
