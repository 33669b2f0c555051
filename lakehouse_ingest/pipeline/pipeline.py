"""Run the streams of a pipeline, each in a thread of its own, until all have ended."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_internals import java_process
from lakehouse_ingest.observe.events import StreamFailed
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.effects import RealWorld, World
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.sampler import Looks, looking
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import Connection


@dataclass
class Pipeline:
    """One pipeline in this process; `stop` may be set from any thread or signal handler."""

    settings: Settings
    spark: SparkSession
    connection: Connection
    watch: Watch
    scratch: Path
    options: RunOptions = RunOptions()  # noqa: RUF009 - it is frozen
    stop: Event = field(default_factory=Event)
    transforms: Sequence[Transform | None] = ()  # one for each stream, in their order
    running: list[Stream] = field(default_factory=list)

    @property
    def landed(self) -> int:
        """The number of committed batches so far."""
        return sum(stream.landed for stream in self.running)

    def streams(self, world: World, options: RunOptions) -> list[Stream]:
        """The streams of the settings, in this world."""
        return [
            Stream(
                self.settings,
                stream,
                self.spark,
                world,
                self.watch,
                self.scratch,
                options,
                self.stop,
                transform,
            )
            for stream, transform in zip_longest(self.settings.streams, self.transforms)
        ]

    def run(self) -> None:
        """Run until stopped, drained or done with the batches.

        If a stream fails, the others go on. When all have ended, the first error is raised here.
        """
        self.running = self.streams(RealWorld(self.connection, self.watch), self.options)
        self.watch.board.expect(stream.name for stream in self.running)
        looks = Looks(self.watch, self.settings.source, self.running, self._jvm)
        with looking(looks), ThreadPoolExecutor(len(self.running), "stream") as threads:
            running = {threads.submit(self._run, stream): stream for stream in self.running}
            try:
                ended = [self._ended(running[future], future, len(running)) for future in as_completed(running)]
            except BaseException:
                self.stop.set()  # this thread was interrupted, so the streams' threads must end as well
                raise
        if failed := [failure for failure in ended if failure]:
            raise failed[0]

    def _run(self, stream: Stream) -> None:
        with self.watch.stream(stream.name):
            stream.run()

    @property
    def _jvm(self) -> int | None:
        process = java_process(self.spark)
        return process.pid if process is not None else None

    def _ended(self, stream: Stream, future: Future[None], streams: int) -> BaseException | None:
        failure = future.exception()
        if failure and streams > 1:
            self.watch.emit(StreamFailed(stream=stream.name, error=failure))
        return failure
