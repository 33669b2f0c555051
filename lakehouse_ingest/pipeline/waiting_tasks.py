"""Warn when no executor of a cluster takes the tasks that wait.

Spark waits for room without an end, and without an error: a worker may come at any time. So nothing here ends a batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic

from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_internals import executors
from lakehouse_ingest.observe.events import TasksWait
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.sampler import safely
from lakehouse_ingest.printable import many

LOOK_S = 5.0
PATIENCE_S = 30.0  # an executor needs up to ten seconds to start on a busy machine
CORES, MEMORY = "spark.executor.cores", "spark.executor.memory"
DEFAULT_MEMORY = "1g"


@dataclass(frozen=True)
class SeenTasks:
    """The tasks of all running jobs, and the executors of this pipeline."""

    stages: tuple[int, ...] = ()
    waiting: int = 0
    running: int = 0
    done: int = 0
    executors: int = 0


@dataclass
class WaitingTasks:
    """Warns once each time, and shows it on the status page for as long as it lasts."""

    watch: Watch
    master: str
    asks: str  # what one executor asks for
    seen: Callable[[], SeenTasks]
    clock: Callable[[], float] = monotonic
    _last: SeenTasks = SeenTasks()
    _since: float = 0.0
    _told: bool = False

    def look(self) -> None:
        found, now = self.seen(), self.clock()
        stuck = found.waiting > 0 and found.running == 0
        # A task may have begun and ended between two looks.
        if not stuck or (found.stages, found.done) != (self._last.stages, self._last.done):
            if self._told:
                self.watch.board.remark("")
            self._since, self._told = now, False
        elif not self._told and now - self._since >= PATIENCE_S:
            self._tell(found)
        self._last = found

    def _tell(self, found: SeenTasks) -> None:
        self._told = True
        what = f"no task has run for {PATIENCE_S:.0f} s"
        self.watch.board.remark(f"{what} on {self.master}, which has given us {many(found.executors, 'executor')}")
        self.watch.emit(
            TasksWait(
                master=self.master,
                waiting=found.waiting,
                executors=found.executors,
                error=(
                    f"{what}, so no batch is committed: no worker has room for an executor of {self.asks}, or it can't"
                    f" reach us; look at the master's page, add a worker, or lower `{MEMORY}` or `{CORES}`"
                ),
            )
        )


@contextmanager
def watching_tasks(spark: SparkSession, watch: Watch) -> Iterator[None]:
    """Look from time to time until the block ends, if another machine or process runs the tasks."""
    settings = spark.sparkContext.getConf()
    master = settings.get("spark.master", "") or ""
    if master.partition("[")[0] == "local":
        yield
        return
    asks = f"{settings.get(CORES, 'any number of')} cores and {settings.get(MEMORY, DEFAULT_MEMORY)}"
    tasks, end = WaitingTasks(watch, master, asks, lambda: tasks_of(spark)), Event()
    thread = Thread(target=_until, args=(end, tasks), name="waiting-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)


def tasks_of(spark: SparkSession) -> SeenTasks:
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for number in sorted(tracker.getActiveStageIds()) if (stage := tracker.getStageInfo(number))]
    running = sum(stage.numActiveTasks for stage in stages)
    done = sum(stage.numCompletedTasks for stage in stages)
    waiting = sum(stage.numTasks for stage in stages) - running - done
    return SeenTasks(tuple(stage.stageId for stage in stages), waiting, running, done, executors(spark))


def _until(end: Event, tasks: WaitingTasks) -> None:
    while not end.wait(LOOK_S):
        safely(tasks.look, tasks.watch)
