"""Rule 7: what a catalog enforces is tried before a pipeline relies on it, once, and nothing of it stays.

Before the real catalog stands a front that leaves out some of the checks, or lets nobody create a table.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.errors import LONGEST, LakehouseError, NeedsOperator, SettingsRefused, TryAgain
from lakehouse_ingest.ledger.keys import ENFORCES, PROBE
from lakehouse_ingest.observe.events import CatalogHardToTry
from lakehouse_ingest.observe.watch import Event
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import CatalogSettings
from lakehouse_ingest.tables import PipelineTables, TableState
from lakehouse_ingest.tables.batch_log import record_spec
from lakehouse_ingest.tables.enforcement import DAYS
from tests.services.doors import connection_to
from tests.services.faulty import NOTHING
from tests.services.flow import Flow
from tests.services.ingesting import Bench, spark_by
from tests.services.lax import LaxCatalog, Requirement, of_branches, of_main, of_type

pytestmark = [pytest.mark.live, pytest.mark.faults]

ANOTHER = "use a catalog that checks"
DIRECT = "`catalog.publish` to"
CREATES: dict[str, Any] = {"path": "/tables$", "body": f'"name": ?"{PROBE}'}
LACKS: dict[str, tuple[Callable[[Requirement], bool], str, str, str]] = {
    # what it leaves out: the sentence, and what to do with each way to publish ("" if that way does not rely on it)
    "branches": (of_branches, "the place of another branch", DIRECT, ""),
    "main": (of_main, "the place of main", ANOTHER, ANOTHER),
    "schemas": (of_type("assert-current-schema-id"), "the current schema", ANOTHER, ANOTHER),
    "layouts": (of_type("assert-default-spec-id"), "the partition layout", ANOTHER, ANOTHER),
    "uuids": (of_type("assert-table-uuid"), "the uuid of the table", ANOTHER, ANOTHER),
}
_number = count(1)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def namespace() -> str:
    return f"ns_lax_{next(_number)}"


def tables(uri: str, publish: str = "branch", *, create: bool = True) -> PipelineTables:
    return PipelineTables(connection_to(uri), "plant", publish, create=create)


def log_of(uri: str, namespace: str) -> TableState:
    lake = tables(uri)
    lake.ensure_namespace(namespace)
    return lake.create(record_spec(f"{namespace}.log", FileOptions()))


class TestLaxCatalog:
    @pytest.mark.parametrize("publish", ["branch", "direct"])
    @pytest.mark.parametrize("create", [True, False], ids=["on a table", "on the batch log"])
    @pytest.mark.parametrize("lacks", LACKS)
    def test_is_refused_with_what_it_lacks(
        self, rest_uri: str, stack: ExitStack, namespace: str, lacks: str, publish: str, *, create: bool
    ) -> None:
        leaves_out, what, *advice = LACKS[lacks]
        lax = stack.enter_context(LaxCatalog(rest_uri, leaves_out=leaves_out))
        log, lake = log_of(lax.uri, namespace), tables(lax.uri, publish, create=create)
        if do := advice[publish == "direct"]:
            with pytest.raises(LakehouseError, match=do) as told:
                lake.enforcement.proven(log)
            assert type(told.value) is (NeedsOperator if do == ANOTHER else SettingsRefused)
            assert (what if create or lacks != "branches" else "a branch that was dropped") in str(told.value)
            assert len(str(told.value)) <= LONGEST
        else:
            assert {*lake.enforcement.proven(log).notes} == {f"{ENFORCES}{publish}"}
        assert lake.names_in(namespace) == [log.name]

    def test_is_refused_before_anything_is_claimed(self, bench: Bench, stack: ExitStack) -> None:
        """A start that is refused must not end the one that runs."""
        lax = stack.enter_context(LaxCatalog(bench.uri, leaves_out=of_branches))
        flow = Flow(bench, lax.uri)
        with spark_by(bench.spark, flow.through), pytest.raises(SettingsRefused, match=r"catalog\.publish"):
            bench.ingest(flow.through)
        assert {*bench.table(f"{flow.namespace}.lakehouse_batches").metadata.refs} == set()
        flow.produce()
        with spark_by(bench.spark, flow.through):
            bench.ingest(flow.through.model_copy(update={"catalog": _direct(flow)}))
        flow.check()


class TestCatalog:
    @pytest.mark.parametrize("publish", ["branch", "direct"])
    def test_is_tried_once_for_each_way_to_publish(
        self, rest_uri: str, stack: ExitStack, namespace: str, publish: str
    ) -> None:
        front = stack.enter_context(LaxCatalog(rest_uri))
        log, lake = log_of(front.uri, namespace), tables(front.uri, publish)
        proof = lake.enforcement.proven(log)
        assert proof.hindrance == ""
        lake.set_properties(log.name, proof.notes)
        front.commits.clear()
        assert lake.enforcement.proven(_found(lake, log)).notes == {}
        assert front.commits == []
        other = tables(front.uri, "direct" if publish == "branch" else "branch")
        assert other.enforcement.proven(_found(lake, log)).notes != {}, "the other way relies on other checks"

    @pytest.mark.parametrize("days", [-1, 0, DAYS - 1, DAYS])
    def test_is_tried_again_after_a_month(self, rest_uri: str, namespace: str, days: int) -> None:
        log, lake = log_of(rest_uri, namespace), tables(rest_uri)
        then = dt.datetime.now(dt.UTC).date() - dt.timedelta(days)
        lake.set_properties(log.name, {f"{ENFORCES}branch": then.isoformat()})
        assert (lake.enforcement.proven(_found(lake, log)).notes == {}) is (0 <= days < DAYS)

    def test_is_remembered_by_the_batch_log(self, bench: Bench, stack: ExitStack) -> None:
        front = stack.enter_context(LaxCatalog(bench.uri))
        probes = front.fail(NOTHING, **CREATES, times=9)
        flow = Flow(bench, front.uri)
        for _ in range(2):
            flow.produce()
            with spark_by(bench.spark, flow.through):
                bench.ingest(flow.through)
            assert probes.struck == 1
        flow.check()
        names = [name for _, name in bench.lake.list_tables(flow.namespace)]
        assert not any(name.startswith(PROBE) for name in names)

    def test_that_lets_us_create_no_table_is_tried_on_the_batch_log(self, bench: Bench, stack: ExitStack) -> None:
        front = stack.enter_context(LaxCatalog(bench.uri))
        forbidden = front.fail(HTTPStatus.FORBIDDEN, **CREATES, times=9)
        flow = Flow(bench, front.uri)
        flow.produce()
        told: list[Event] = []
        with spark_by(bench.spark, flow.through):
            pipeline = bench.pipeline(flow.through)
            pipeline.watch.add_listener(told.append)
            pipeline.run()
        (warned,) = [each for each in told if isinstance(each, CatalogHardToTry)]
        assert "were tried on the batch log" in warned.error
        assert forbidden.struck == 1
        flow.check()

    def test_that_lets_us_drop_no_table_is_used(self, rest_uri: str, stack: ExitStack, namespace: str) -> None:
        front = stack.enter_context(LaxCatalog(rest_uri))
        front.fail(HTTPStatus.FORBIDDEN, method="DELETE", path=PROBE)
        log, lake = log_of(front.uri, namespace), tables(front.uri)
        proof = lake.enforcement.proven(log)
        (left,) = {*lake.names_in(namespace)} - {log.name}
        assert left in proof.hindrance
        assert proof.notes
        assert lake.known_in(namespace).tables == {}, "its branch is not taken for that of a start"

    def test_that_gives_no_answer_is_tried_by_the_next_start(
        self, rest_uri: str, stack: ExitStack, namespace: str
    ) -> None:
        front = stack.enter_context(LaxCatalog(rest_uri))
        log, lake = log_of(front.uri, namespace), tables(front.uri)
        front.fail(HTTPStatus.BAD_GATEWAY, path=f"{PROBE}[^/]*$")
        with pytest.raises(TryAgain):
            lake.enforcement.proven(log)
        assert lake.enforcement.proven(log).notes

    def test_that_was_tried_has_nothing_left_of_it(self, rest_uri: str, namespace: str, warehouse: Path) -> None:
        log, lake = log_of(rest_uri, namespace), tables(rest_uri)
        before = {path for path in warehouse.rglob("*") if path.is_file()}
        assert lake.enforcement.proven(log).notes
        assert {path for path in warehouse.rglob("*") if path.is_file()} == before
        assert lake.names_in(namespace) == [log.name]


def _found(lake: PipelineTables, log: TableState) -> TableState:
    found = lake.find(log.name)
    assert found
    return found


def _direct(flow: Flow) -> CatalogSettings:
    return flow.through.catalog.model_copy(update={"publish": "direct"})
