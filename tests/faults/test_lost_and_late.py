"""Tables are dropped or recreated under a pipeline, tokens end in the middle of a batch, answers come too late.

If the pipeline can go on, it does, with every offset in exactly one place. If a person has to decide, it ends with a
sentence that says what was found, and the next start says it again.
"""

from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.tables import Column, Connection, PipelineTables, TableSpec
from tests.faults import test_catalog_faults as catalog_faults
from tests.faults.test_catalog_faults import PYICEBERG, Plan
from tests.services.faulty import AFTER, BEFORE, NOTHING, RESET, Faulty
from tests.services.flow import LANDING, Flow
from tests.services.fronts import passed_on
from tests.services.gateway import Gateway
from tests.services.ingesting import Bench
from tests.services.pipelines import until

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(300)]

COMMIT = {"path": "/tables/a$", **catalog_faults.COMMIT}

SLOW = 2.0


@pytest.fixture
def proxy(rest_uri: str) -> Iterator[Faulty]:
    with Faulty(rest_uri) as faulty:
        yield faulty


# -- tables -----------------------------------------------------------------------------------------------


def drop(flow: Flow) -> None:
    flow.bench.lake.purge_table(f"{flow.namespace}.a")


def make_anew(flow: Flow) -> None:
    made = flow.bench.table(f"{flow.namespace}.a")
    drop(flow)
    flow.bench.lake.create_table(made.name(), made.schema(), partition_spec=made.spec(), properties=made.properties)


class TestTable:
    @pytest.mark.parametrize(
        ("harm", "said"), [(drop, "dropped"), (make_anew, "replaced|recreated")], ids=["dropped", "made anew"]
    )
    @pytest.mark.parametrize("commit", [None, COMMIT], ids=["between batches", "in a commit"])
    def test_that_is_dropped_or_recreated_ends_this_run_and_the_next(
        self, bench: Bench, proxy: Faulty, commit: Plan | None, harm: Callable[[Flow], None], said: str
    ) -> None:
        flow = Flow(bench, proxy.uri)
        sentence = f"{flow.namespace}\\.a\\b.* ({said}) .*restore it; `lakehouse-ingest recover`"
        with pytest.raises(TableChanged, match=sentence), flow.running():  # noqa: PT012
            fault = proxy.fail(NOTHING, **commit, meanwhile=lambda: harm(flow)) if commit else None
            if not fault:
                harm(flow)
            flow.produce()
            assert until(flow.end.done, LANDING)
            assert not fault or fault.is_over
        with pytest.raises(TableChanged, match=sentence):
            bench.ingest(flow.direct)

    def test_that_comes_back_goes_on_where_it_was(self, bench: Bench, proxy: Faulty) -> None:
        flow = Flow(bench, proxy.uri)
        name, away = f"{flow.namespace}.a", f"{flow.namespace}.away"
        with pytest.raises(TableChanged, match="restore it"), flow.running():  # noqa: PT012
            bench.lake.rename_table(name, away)
            flow.produce()
            assert until(flow.end.done, LANDING)
        bench.lake.rename_table(away, name)
        flow.drain()


class TestToken:
    def test_that_expires_in_the_middle_of_a_batch_is_renewed(self, bench: Bench, proxy: Faulty) -> None:
        with Gateway(proxy.upstream) as gateway:
            proxy.upstream = gateway.uri
            flow = Flow(bench, proxy.uri, credential=gateway.credential)
            with flow.running():
                for gateway.expired, when in ((401, BEFORE), (419, BEFORE), (401, AFTER), (419, AFTER)):
                    flow.survives(proxy.fail(NOTHING, when=when, **COMMIT, meanwhile=gateway.revoke))
            assert gateway.seen["expired"]
        flow.drain()

    def test_of_the_settings_that_is_revoked_in_the_middle_of_a_batch_ends_the_run(
        self, bench: Bench, proxy: Faulty
    ) -> None:
        with Gateway(proxy.upstream) as gateway:
            proxy.upstream = gateway.uri
            flow = Flow(bench, proxy.uri, token=gateway.token())
            with pytest.raises(SettingsRefused, match=r"`catalog\.token`"), flow.running():  # noqa: PT012
                fault = proxy.fail(NOTHING, **COMMIT, meanwhile=gateway.revoke)
                flow.produce()
                assert until(flow.end.done, LANDING)
                assert fault.is_over
        flow.drain()


class TestCommit:
    def test_that_is_slower_than_the_limit_is_looked_up(self, bench: Bench, proxy: Faulty) -> None:
        """A request that timed out may still take effect, before or after the look: it must not matter."""
        flow = Flow(bench, proxy.uri, timeout=SLOW / 2)
        with flow.running():
            for when in (BEFORE, AFTER):
                flow.survives(proxy.fail(NOTHING, when=when, **COMMIT, delay=SLOW))
        flow.drain()

    def test_that_takes_effect_between_two_looks_is_recognised(self, proxy: Faulty, bench: Bench) -> None:
        """The first look after the lost request finds nothing of it, the second one does: nobody else was there."""
        pipeline, name, done = "heard", "ns_heard.t", {("t", 0): 9}
        lake = PipelineTables(Connection(proxy.uri), pipeline)
        lake.ensure_namespace("ns_heard")
        lake.create(TableSpec(name, (Column("n", "long"),)))
        place, _ = lake.claim(name, ())

        def hear() -> None:
            (request,) = lost.requests
            assert passed_on(proxy.upstream, request).status == HTTPStatus.OK

        def heard_after_a_look() -> None:
            proxy.fail(NOTHING, method="GET", path="/t$", when=AFTER, meanwhile=hear)

        lost = proxy.fail(RESET, path="/t$", body='"ref-name":"main"', agent=PYICEBERG, meanwhile=heard_after_a_look)
        mark = Mark(Token(pipeline, 1, 1, 0), SourceIdentity(), {}, done, {})
        assert lake.publication.append(place, [{"n": 1}], mark, {}).held == done
        assert lost.is_over
        assert [row["n"] for row in bench.rows(name)] == [1]
