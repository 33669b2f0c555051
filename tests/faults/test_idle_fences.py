"""Rule 1: the fence of an idle table lets go of old files while the pipeline runs, and costs no batch."""

import pytest

from lakehouse_ingest.observe.events import FenceNotMoved
from lakehouse_ingest.observe.watch import Event
from lakehouse_ingest.pipeline import idle_fences
from tests.services.faulty import Faulty
from tests.services.flow import LANDING, Flow
from tests.services.ingesting import Bench
from tests.services.pipelines import until

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

OFTEN_S = 0.2


def lags(flow: Flow, table: str) -> bool:
    """Whether the fence is still where the pipeline's last commit left it, though others have moved main since."""
    refs = flow.bench.table(f"{flow.namespace}.{table}").metadata.refs
    return refs[f"ingest_{flow.name}_1"].snapshot_id != refs["main"].snapshot_id


def not_moved(events: list[Event]) -> list[FenceNotMoved]:
    return [each for each in events if isinstance(each, FenceNotMoved)]


class TestFenceOfIdleTable:
    def test_follows_main(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Others compact a table, and main moves away from the fence. No record comes; then some do."""
        monkeypatch.setattr(idle_fences, "EVERY_S", OFTEN_S)
        monkeypatch.setattr(idle_fences, "PAUSE_S", OFTEN_S)
        with Faulty(bench.uri) as proxy:
            flow = Flow(bench, proxy.uri)
            with flow.running():
                events: list[Event] = []
                flow.pipeline.watch.add_listener(events.append)
                for table in ("a", "dead_letters"):
                    flow.compact(table)
                    assert until(lambda: not lags(flow, table), LANDING), table  # noqa: B023 - called at once
                before = flow.bench.table(f"{flow.namespace}.a")
                moved = proxy.fail(403, path="/tables/a$", body='"ref-name":"ingest_[a-z0-9_]*"', times=1)
                flow.compact("a")
                assert until(lambda: bool(not_moved(events)), LANDING)
                assert until(lambda: not lags(flow, "a"), LANDING), "it is tried again"
                assert moved.is_over
                assert [each.table for each in not_moved(events)] == [f"{flow.namespace}.a"]
                assert flow.bench.table(f"{flow.namespace}.a").current_snapshot() != before.current_snapshot()
                flow.survives()
            assert not flow.heard.retries
        flow.drain()
