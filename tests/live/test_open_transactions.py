"""A transaction that never ends, on a real broker: it is shown by the metrics, the log and `status`."""

from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.operations.status import look
from lakehouse_ingest.pipeline.query_progress import QueryProgress
from lakehouse_ingest.pipeline.sampler import Looks
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.stages.sources.kafka.open_transactions import HANGS_S
from telemetry.testing import recorded
from tests.live.test_status import words
from tests.live.test_where_to_begin import events
from tests.services.command import Command
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, open_transaction, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live


@dataclass
class Read:
    """A stream that has landed what it could."""

    name: str
    topics: tuple[str, ...]
    at: Offsets
    newest: float | None = None
    progress: QueryProgress | None = None


class TestHangingTransaction:
    def test_is_shown_by_metrics_log_and_status(
        self, bench: Bench, topic: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Of 56 offsets five are read, and the lag is 0."""
        create_topic(bench.broker, topic)
        produce(bench.broker, topic, events(range(5)))
        settings, now = bench.settings(topic), [0.0]
        with open_transaction(bench.broker, topic, events(range(5, 55))) as transaction, recorded() as seen:
            produce(bench.broker, topic, events([55]))
            bench.ingest(settings)
            with capture_logs() as logged:
                stream = Read(topic, (topic,), {(topic, 0): 5})
                looks = Looks(Watch(topic, seen.telemetry), settings.source, [stream], None, clock=lambda: now[0])
                for moment in (0.0, HANGS_S - 1, HANGS_S, HANGS_S + 1):
                    now[0] = moment
                    looks.look()
                    assert seen.total("lakehouse.uncommitted", topic=topic, partition=0) == 51
                    assert seen.total("lakehouse.lag", topic=topic, partition=0) == 0
                    assert len(logged) == (moment >= HANGS_S)
            (warning,) = logged
            assert (warning["event"], warning["log_level"]) == ("transaction_hangs", "warning")
            assert (warning["topic"], warning["partition"], warning["offset"]) == (topic, 0, 5)
            assert f"abort --topic {topic} --partition 0 --start-offset 5`" in warning["error"]
            assert seen.total("lakehouse.warnings", event="transaction_hangs") == 1
            (found,) = look(settings)
            assert found.standing
            (part,) = found.standing.partitions
            assert (part.landed, part.end, part.lag, part.uncommitted) == (5, 5, 0, 51)
            said = " ".join(Command(capsys)("status", *words(bench, topic)).out.split())
            assert f"{topic} partition 0: 51 offsets from 5 on wait for the end of an open transaction" in said
            transaction.commit_transaction()

            def has_ended() -> bool:
                looks.look()
                return seen.total("lakehouse.uncommitted", topic=topic, partition=0) == 0

            assert until(has_ended, 30)
        assert "wait for the end of a transaction" not in Command(capsys)("status", *words(bench, topic)).out
