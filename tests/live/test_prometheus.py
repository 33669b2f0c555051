"""A real Prometheus scrapes a real pipeline: every metric, dashboard and alert has something to say, and it is true."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from lakehouse_ingest.operations.verify.streams import prove, report
from lakehouse_ingest.pipeline import reporting
from lakehouse_ingest.pipeline.effects import OnSpark
from lakehouse_ingest.pipeline.passes import Tasks
from lakehouse_ingest.pipeline.task import Receipt, Work
from lakehouse_ingest.stages.sources import of_stream
from telemetry import INSTRUMENTS, HttpAnswer, HttpPages
from telemetry.instruments import exported
from telemetry.sdk import LiveTelemetry
from telemetry.testing import Point, Recording, recorded
from tests.services.dashboards import alerts, panel_queries, uncompared
from tests.services.faulty import AFTER, Fault, Faulty
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events
from tests.services.pipelines import until
from tests.services.prometheus import Prometheus, promtool

pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]  # the first to ask fetches, or builds, what it asks for

NEWEST = 1_780_000_000  # event time
WINDOW = "10m"  # longer than the test, so that whatever has happened lies within


@contextmanager
def exposed(seen: Recording) -> Iterator[str]:
    """Where the metrics can be scraped."""

    def page(headers: Mapping[str, str]) -> HttpAnswer:
        answer = seen.telemetry.scrape(headers.get("accept", ""))
        assert answer
        return answer

    pages = HttpPages("127.0.0.1", 0, {"/metrics": page}).start()
    try:
        yield f"127.0.0.1:{pages.port}"
    finally:
        pages.close()


@dataclass
class Meddler:
    """Meddles with the second and the third batch before their tasks run."""

    bench: Bench
    proxy: Faulty
    topic: str
    batches: int = 0
    outages: list[Fault] = field(default_factory=list)
    neighbours: list[int] = field(default_factory=list)  # bytes

    def before(self, work: Work) -> None:
        if work.only is None:  # the batch's first pass
            self.batches += 1
            if self.batches == 2:  # until a start has ended by it
                self.outages.append(self.proxy.fail(503, method="GET", path=rf"/tables/{self.topic}$", times=10_000))
            if self.batches == 3:  # between our look at the table and our commit
                self._commit()

    def _commit(self) -> None:
        table = self.bench.table(f"ns_{self.topic}.{self.topic}")
        table.append(table.scan(limit=1).to_arrow().slice(0, 1))
        snapshot = table.current_snapshot()
        assert snapshot
        assert snapshot.summary
        self.neighbours.append(int(snapshot.summary["added-files-size"] or 0))


class TestPrometheus:
    def test_accepts_the_configuration_and_each_alert_fires(self) -> None:
        promtool("check", "config", "prometheus.yml")
        promtool("test", "rules", "alerts_test.yml")
        tested = Path("deploy/prometheus/alerts_test.yml").read_text(encoding="utf-8")
        for alert in alerts():
            assert f"alertname: {alert}\n        exp_alerts:\n" in tested, f"{alert} is never seen to fire"

    @pytest.mark.usefixtures("_looks_often")
    def test_has_true_numbers_for_every_metric_panel_and_alert(
        self, bench: Bench, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It meets a dead letter, a new column, a neighbour's commit, an outage, a lost answer, and many snapshots."""
        monkeypatch.setattr(reporting, "MEASURED_EVERY_S", 0.0)
        create_topic(bench.broker, topic, 2)
        proxy = Faulty(bench.uri)
        meddler = Meddler(bench, proxy, topic)
        write = OnSpark.write

        def meddled(on_spark: OnSpark, work: Work, tasks: Tasks) -> Sequence[Receipt]:
            meddler.before(work)
            return write(on_spark, work, tasks)

        def has_landed(count: int) -> bool:
            if seen.total("lakehouse.restarts"):
                meddler.outages[0].times = 0
            return seen.total("lakehouse.offset", topic=topic) == count

        with (
            proxy,
            recorded() as seen,
            exposed(seen) as target,
            Prometheus(tmp_path, {"lakehouse-ingest": target}) as prometheus,
        ):
            _discard(bench, "thrown_away", seen)
            monkeypatch.setattr(OnSpark, "write", meddled)
            at = {"uri": proxy.uri, "namespace": f"ns_{topic}"}
            settings = bench.settings(topic, catalog=at, ledger={"keep_snapshots": 2, "keep_for": 0, "batch_every": 0})
            proxy.fail(503, when=AFTER, path=rf"/tables/{topic}$", body='"ref-name":"main"')
            pipeline = bench.pipeline(settings, telemetry=seen.telemetry, drain=False)
            began = time.time()
            with running(pipeline):
                values = [
                    *(value for _, value, *_ in events(range(10), 1)),
                    b"{",
                    f'{{"n": 11, "ts_ms": {NEWEST * 1000}, "new": "column"}}'.encode(),
                ]
                for number, value in enumerate(values):
                    produce(bench.broker, topic, [(None, value, None, None, number % 2)])
                    if number in (3, 6, 9):
                        assert until(partial(has_landed, number + 1), 120)
                assert until(partial(has_landed, len(values)), 120)
                assert sum(of_stream(settings.source, settings.streams[0]).ends().values()) == len(values)
                assert until(lambda: bool(seen.points("lakehouse.spark.phase.duration")), 30)
            report(pipeline.watch, settings, prove(settings))
            assert isinstance(seen.telemetry, LiveTelemetry)
            seen.telemetry._outage.lost("traces", 3)  # what costs something: tests/live/test_telemetry_otlp
            assert {it.name for it in INSTRUMENTS.values() if seen.points(it.name)} == set(INSTRUMENTS)
            _true(bench, seen, topic, pipeline.landed, values, sum(meddler.neighbours), began)
            scraped = time.time()
            assert until(lambda: bool(prometheus.ask(f"timestamp(up) > {scraped} + 6")), 60)
            for panel, query in panel_queries(WINDOW):
                assert _numbers(prometheus, query), f"{panel} has nothing to show: {query}"
            for alert, expression in alerts().items():
                assert _numbers(prometheus, uncompared(expression)), f"{alert} has nothing to judge: {expression}"
            assert {rule["name"]: rule["health"] for rule in prometheus.rules()} == dict.fromkeys(alerts(), "ok")
            landed = f'sum(lakehouse_records_total{{lakehouse_stream="{topic}",lakehouse_outcome="landed"}})'
            assert prometheus.value(landed) == 11


def _numbers(prometheus: Prometheus, query: str) -> list[str]:
    return [number for each in prometheus.ask(query) if (number := each["value"][1]) != "NaN"]


def _discard(bench: Bench, topic: str, seen: Recording) -> None:
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, [*events(range(2), 1), (None, b"{")])
    bench.ingest(bench.settings(topic, stream={"on_error": "ignore"}), telemetry=seen.telemetry)
    bench.ingest(bench.settings(topic, table={"contract": "widen"}), telemetry=seen.telemetry)
    assert seen.total("lakehouse.warnings", event="settings_changed") == 1
    assert seen.total("lakehouse.records", outcome="discarded", reason="broken_json", stream=topic) == 1


def _true(
    bench: Bench, seen: Recording, topic: str, landed: int, values: list[bytes], neighbours: int, began: float
) -> None:
    """Each against a number that others have: the table, the broker, the kernel, the clock."""
    name = f"ns_{topic}.{topic}"
    at = {"pipeline": topic, "stream": topic}
    of = {"pipeline": topic, "table": name}
    table = bench.table(name)
    rows = len(bench.rows(name)) - 1  # without the neighbour's
    assert seen.total("lakehouse.records", outcome="landed", table=name) == rows == 11
    assert seen.total("lakehouse.records", outcome="dead", reason="broken_json", **at) == 1
    assert seen.total("lakehouse.received", **at) == sum(map(len, values))
    assert seen.total("lakehouse.lag", **at) == seen.total("lakehouse.lag.time", **at) == 0
    assert seen.total("lakehouse.errors", pipeline=topic) == seen.total("lakehouse.restarts", **at) >= 1
    assert seen.total("lakehouse.batches", outcome="failed", **at) == 1
    assert seen.total("lakehouse.batches", outcome="landed", **at) == landed
    assert seen.total("lakehouse.running") == 0
    # -- the table ----------------------------------------------------------------------------------------
    files = table.inspect.files()
    assert seen.total("lakehouse.table.files", **of) == len(files)
    assert seen.total("lakehouse.table.size", **of) == sum(files["file_size_in_bytes"].to_pylist())
    assert seen.total("lakehouse.table.rows", **of) == rows + 1
    assert seen.total("lakehouse.table.partitions", **of) == 1, "one record was the last to come"
    versions = (*(each.metadata_file for each in table.metadata.metadata_log), table.metadata_location)
    assert seen.total("lakehouse.table.metadata", **of) in {len(table.io.new_input(each)) for each in versions}
    snapshots = len(table.metadata.snapshots)
    assert seen.total("lakehouse.table.snapshots", **of) == snapshots
    assert seen.total("lakehouse.snapshots.expired", **of) == table.last_sequence_number - snapshots
    assert seen.total("lakehouse.files", **of) == len(files) - 1
    assert seen.total("lakehouse.written", **of) == sum(files["file_size_in_bytes"].to_pylist()) - neighbours
    assert seen.total("lakehouse.commit.reconciled", **of) == 1
    assert seen.total("lakehouse.commit.retries", **of) >= 1
    assert seen.total("lakehouse.schema.changes", **of) == 1
    # -- time ---------------------------------------------------------------------------------------------
    ended = time.time()
    (duration,) = _points(seen, "lakehouse.batch.duration", stream=topic)
    (freshness,) = _points(seen, "lakehouse.freshness", stream=topic)
    assert duration.count == freshness.count == landed
    assert 0 < duration.value < freshness.value, "a record was there before its batch"
    assert freshness.value < (ended - began) * landed, "and not before the run"
    (record,) = _points(seen, "lakehouse.stage.duration", stream=topic, stage="record")
    assert record.count == landed
    assert sum(each.value for each in _points(seen, "lakehouse.commit.duration", table=name)) < ended - began
    assert began < seen.total("lakehouse.landed.timestamp", **at) < ended
    assert began < seen.total("lakehouse.event.age", **at) + NEWEST < ended
    # -- the processes ------------------------------------------------------------------------------------
    assert 0 < seen.total("lakehouse.process.cpu", process="driver", pipeline=topic) <= time.process_time() + 1
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    assert memory / 3 < seen.total("lakehouse.process.memory", process="driver", pipeline=topic) < memory * 3
    assert seen.total("lakehouse.verify.findings", kind="duplicate", **at) == 1, "the neighbour's row"
    assert seen.total("lakehouse.verify.findings", **at) == 1


def _points(seen: Recording, instrument: str, **attributes: str) -> list[Point]:
    wanted = {exported(name): value for name, value in attributes.items()}.items()
    return [point for point in seen.points(instrument) if wanted <= point.attributes.items()]
