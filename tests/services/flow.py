"""A pipeline in this process that reaches its catalog by an address of its own: a proxy that does harm, for one.

with Flow(bench, proxy.uri).running() as flow:
    flow.survives(proxy.fail(503, path="/tables/a$"))
flow.drain()
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from lakehouse_ingest.observe.events import CommitRetried, Retrying
from lakehouse_ingest.observe.watch import Event
from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.settings import Settings
from tests.services.doors import in_settings
from tests.services.faulty import Fault
from tests.services.ingesting import Bench, spark_by
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until
from tests.services.readers import Coordinates, Reader

LANDING = 120.0  # on a machine that is busy with other tests
PARTITIONS = 2


@dataclass
class Heard:
    """A listener that keeps why a pipeline began again, and where commits of others came first."""

    retries: list[str] = field(default_factory=list)  # why it began again
    refusals: list[str] = field(default_factory=list)  # the tables where others came first

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        heard = cls()
        pipeline.watch.add_listener(heard)
        return heard

    def __call__(self, event: Event) -> None:
        match event:
            case Retrying():
                self.retries.append(str(event.error))
            case CommitRetried():
                self.refusals.append(event.table)


def is_proven(settings: Settings) -> None:
    """By `lakehouse-ingest verify`."""
    (verified,) = prove(settings)
    assert verified.verdict
    assert verified.code == PROVEN, verified.verdict.findings


class Flow:
    """Two tables, `a` and `b`, more of them when asked, and dead letters; `catalog` and `s3` as in the settings."""

    _numbers = count(1)

    def __init__(self, bench: Bench, uri: str, *, s3: dict[str, Any] | None = None, **catalog: Any) -> None:
        self.bench, self.name = bench, f"flow_{next(self._numbers)}"
        self.namespace = f"ns_{self.name}"
        self.through = self._settings({**in_settings(uri), **catalog}, s3 or {})
        self.direct = self._settings(in_settings(bench.uri), s3 or {})
        self._kinds, self._made = ["a", "b"], 0
        create_topic(bench.broker, self.name, PARTITIONS)

    def _settings(self, catalog: dict[str, Any], s3: dict[str, Any]) -> Settings:
        return self.bench.settings(
            self.name,
            catalog={"namespace": self.namespace, **catalog},
            s3=s3,
            stream={"type_from": "field:type"},
            table={"table": "{type}"},
            ledger={"batch_every": 0},
            retry={"first": 0.1, "limit": 30},
        )

    # -- what it is given, and what came of it ------------------------------------------------------------

    def produce(self, *, kind: str = "a", field: str = "n") -> None:
        """Two events of each type, one that can't be read, and one of the type and the field that are asked for."""
        self._kinds = [*dict.fromkeys([*self._kinds, kind])]
        values = [f'{{"type": "{each}", "n": 1}}' for each in ("a", "b", "a", "b")]
        values += ['{"type": "a", ', f'{{"type": "{kind}", "{field}": 2}}']
        made = range(self._made, self._made + len(values))
        produce(
            self.bench.broker,
            self.name,
            ((None, value.encode(), None, None, n % PARTITIONS) for n, value in zip(made, values, strict=True)),
        )
        self._made = made.stop

    @property
    def produced(self) -> Coordinates:
        return Counter({(self.name, number % PARTITIONS, number // PARTITIONS): 1 for number in range(self._made)})

    @property
    def tables(self) -> list[str]:
        return [f"{self.namespace}.{name}" for name in (*self._kinds, "dead_letters")]

    def landed(self) -> bool:
        """By the tables' own counts: to read all rows at each look takes too long."""
        there = [self.bench.table(name) for name in self.tables if self.bench.lake.table_exists(name)]
        heads = [head.summary for table in there if (head := table.current_snapshot())]
        return sum(int(summary["total-records"] or 0) for summary in heads if summary) >= self._made

    def check(self) -> None:
        assert self.bench.places(*self.tables) == self.produced

    def compact(self, kind: str) -> None:
        """All rows of a table into new files."""
        table = self.bench.table(f"{self.namespace}.{kind}")
        table.overwrite(table.scan().to_arrow())

    # -- how it runs --------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From the first landing on; what ends it by itself is raised at the end."""
        with spark_by(self.bench.spark, self.through), ThreadPoolExecutor(1, "flow") as threads:
            pipeline = self.bench.pipeline(self.through, drain=False)
            self.pipeline, self.heard = pipeline, Heard.of(pipeline)
            self.end: Future[None] = threads.submit(pipeline.run)
            try:
                self.produce()
                self.wait()
                yield self
            finally:
                pipeline.stop.set()
            self.end.result(LANDING)

    def wait(self, *faults: Fault) -> None:
        """Until all has landed, and every fault has struck; or until it has ended."""

        def done() -> bool:
            return self.end.done() or (all(fault.is_over for fault in faults) and self.landed())

        assert until(done, LANDING, 0.05), [fault.struck for fault in faults]

    def survives(self, *faults: Fault, **event: str) -> None:
        self.produce(**event)
        self.wait(*faults)
        if self.end.done():
            self.end.result()
        assert all(fault.is_over for fault in faults), "a fault did not strike"
        self.check()

    def drain(self) -> None:
        """To the end, past whatever stands in between; two readers agree on what is there."""
        with spark_by(self.bench.spark, self.direct):
            self.bench.ingest(self.direct)
        self.check()
        reader = Reader(self.bench.uri, self.namespace, self.bench.files)
        assert reader.by_duckdb(*self._kinds, "dead_letters") == self.produced
