"""A catalog fails before or after it has done what it was asked: every offset ends in exactly one place.

The pipeline reaches the catalog through a proxy that does the harm. What reads back the result, or changes a table
meanwhile, goes past the proxy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets, SourceIdentity, Token
from lakehouse_ingest.tables import Add, Column, Connection, PipelineTables, Position, Registered, TableSpec
from tests.services.doors import connection_to
from tests.services.faulty import AFTER, BEFORE, RESET, Faulty, When
from tests.services.flow import Flow
from tests.services.ingesting import Bench

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

PYICEBERG = r"^PyIceberg"
Plan = Mapping[str, Any]
FAULTS: Mapping[str, Plan] = {
    "500": {"status": 500},
    "502": {"status": 502},
    "503": {"status": 503},
    "503, Retry-After": {"status": 503, "headers": {"Retry-After": "1"}},
    "504": {"status": 504},
    "429": {"status": 429, "headers": {"Retry-After": "1"}},
    "409": {"status": 409},
    "reset": {"status": RESET},
}
COMMIT: Plan = {"body": r'"action":"add-snapshot"(?s:.*)"ref-name":"main"', "agent": PYICEBERG}
COMPACTED = ("500", "503, Retry-After", "429", "409", "reset")
FEW = ("500", "409", "reset")  # in a whole pipeline; the others in `make faults`


def some(faults: Iterable[str]) -> list[Any]:
    return [pytest.param(each, marks=() if each in FEW else pytest.mark.long) for each in faults]


@pytest.fixture(scope="module")
def proxy(rest_uri: str) -> Iterator[Faulty]:
    with Faulty(rest_uri) as faulty:
        yield faulty


@pytest.fixture
def _healed(proxy: Faulty) -> Iterator[None]:
    yield
    proxy.heal()


@pytest.fixture(scope="module")
def flow(bench: Bench, proxy: Faulty) -> Iterator[Flow]:
    """One for many faults, each upon what the others have left."""
    started = Flow(bench, proxy.uri)
    with started.running():
        yield started
    started.drain()


def harmed(flow: Flow, proxy: Faulty, fault: Plan, meanwhile: Callable[[str], object]) -> None:
    """Of one batch: what one table's commit did not do, another one's has done."""
    flow.survives(
        proxy.fail(**fault, **COMMIT, path="/tables/a$", when=BEFORE, meanwhile=lambda: meanwhile("a")),
        proxy.fail(**fault, **COMMIT, path="/tables/b$", when=AFTER, meanwhile=lambda: meanwhile("b")),
    )


NUMBERS = count()
OTHERS: Mapping[str, Plan] = {
    "making a table": {"path": "/tables$"},
    "opening a branch": {"path": "/tables/new", "body": '"ref-name":"ingest_', "agent": PYICEBERG},
    "registering": {"path": "/lakehouse_batches$", "body": "set-properties"},
    "adding a column": {"path": "/tables/a$", "body": "add-schema"},
    "the batch record": {"path": "/lakehouse_batches$", "body": '"action":"add-snapshot"'},
    "loading a table": {"method": "GET", "path": "/tables/a$", "agent": PYICEBERG},
}
# In a whole pipeline what differs most; below all of them, without Spark.
PLANNED = [
    *((asked, "reset", AFTER) for asked in OTHERS),
    *((asked, "503", BEFORE) for asked in OTHERS if "load" in asked),
]


class TestPipeline:
    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize("fault", some(FAULTS))
    def test_survives_a_failed_commit(self, flow: Flow, proxy: Faulty, fault: str) -> None:
        harmed(flow, proxy, FAULTS[fault], lambda _: None)

    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize("fault", some(COMPACTED))
    def test_survives_a_failed_commit_with_a_compaction_in_between(self, flow: Flow, proxy: Faulty, fault: str) -> None:
        harmed(flow, proxy, FAULTS[fault], flow.compact)

    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize(("asked", "fault", "when"), PLANNED)
    def test_survives_any_other_failed_request(
        self, flow: Flow, proxy: Faulty, asked: str, fault: str, when: When
    ) -> None:
        planned = proxy.fail(**FAULTS[fault], **OTHERS[asked], when=when)
        new = "column" if "column" in asked else "table"
        event = {"field": f"n{next(NUMBERS)}"} if new == "column" else {"kind": f"new{next(NUMBERS)}"}
        flow.survives(planned, **event)


# -- pyiceberg's requests alone, with every fault ---------------------------------------------------------------------


@dataclass
class Alone:
    """A pipeline's part that needs no Spark: after `TryAgain` it begins again, as a start does."""

    bench: Bench
    proxy: Faulty
    name: str
    lake: PipelineTables = field(init=False)

    def __post_init__(self) -> None:
        self.lake = PipelineTables(Connection(self.proxy.uri), self.name)
        self.lake.ensure_namespace(self.namespace)
        self.lake.create(TableSpec(self.table, (Column("n", "long"),)))
        self.lake.claim(self.table, ())

    @property
    def namespace(self) -> str:
        return f"ns_{self.name}"

    @property
    def table(self) -> str:
        return f"{self.namespace}.t"

    def make_a_namespace(self) -> None:
        self.lake.ensure_namespace(f"{self.namespace}_more")
        assert (f"{self.namespace}_more",) in self.bench.lake.list_namespaces()

    def make_a_table(self) -> None:
        made = self.lake.create(TableSpec(f"{self.namespace}.more", (Column("n", "long"),)))
        assert made.uuid == str(self.bench.table(made.name).metadata.table_uuid)

    def claim(self) -> None:
        place, _ = self.lake.claim(self.table, ())
        epoch = place.epoch
        refs = self.bench.table(self.table).metadata.refs
        assert {ref for ref in refs if ref.startswith("ingest_")} == {place.branch}
        assert place.epoch == epoch > 1

    def add_a_column(self) -> None:
        self.lake.change(self.table, [Add("", Column("more", "string"))])
        assert self.bench.table(self.table).schema().column_names == ["n", "more"]

    def register(self) -> None:
        self.lake.register(self.table, {"x.y": Registered("uuid")})
        assert self.lake.registered(self.table) == {"x.y": Registered("uuid")}

    def append(self) -> None:
        place, _ = self.lake.claim(self.table, ())
        epoch = place.epoch
        done = {("t", 0): 9}
        if place.held != done:
            mark = Mark(Token(self.name, 1, epoch, 0), SourceIdentity(), {}, done, {})
            assert self.lake.publication.append(place, [{"n": 1}], mark, {}).held == done
        assert [row["n"] for row in self.bench.rows(self.table)] == [1]


REQUESTS: Mapping[str, tuple[Callable[[Alone], None], Plan]] = {
    "namespace": (Alone.make_a_namespace, {"path": "/namespaces$"}),
    "table": (Alone.make_a_table, {"path": "/tables$"}),
    "branch": (Alone.claim, {"path": "/t$"}),
    "column": (Alone.add_a_column, {"path": "/t$"}),
    "properties": (Alone.register, {"path": "/t$"}),
    "rows": (Alone.append, {"path": "/t$", **COMMIT}),
}


class TestRequest:
    @pytest.mark.usefixtures("_healed")
    def test_that_only_reads_is_repeated_at_once(self, bench: Bench, proxy: Faulty) -> None:
        """Twice, so that the stream need not begin again. Failures that last are left to the stream."""
        alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
        look: Plan = {"method": "GET", "path": "/t$", "agent": PYICEBERG}
        for said in ("500", "503", "429", "reset"):
            twice = proxy.fail(**FAULTS[said], **look, times=2)
            assert alone.lake.find(alone.table), said
            assert twice.is_over, said
        lasting = proxy.fail(503, **look, times=3)
        with pytest.raises(TryAgain, match="loading table"):
            alone.lake.find(alone.table)
        assert lasting.is_over

    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize("when", [BEFORE, AFTER])
    def test_that_opens_a_branch_is_repeated_for_its_own_table_only(
        self, bench: Bench, proxy: Faulty, when: When
    ) -> None:
        """With hundreds of tables, a start that began again for each lost answer would never end."""
        alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
        names = [f"{alone.namespace}.t{number}" for number in range(len(FAULTS))]
        for name in names:
            alone.lake.create(TableSpec(name, (Column("n", "long"),)))
        for begun in ("upon an empty table", "upon the branch of the start before"):
            epoch = alone.lake.claim(alone.table, ())[0].epoch
            lost = [
                proxy.fail(**fault, path=f"{name.rpartition('.')[2]}$", body='"ref-name":"ingest_', when=when)
                for name, fault in zip(names, FAULTS.values(), strict=True)
            ]
            with ThreadPoolExecutor(4) as threads:
                opened = threads.map(partial(alone.lake.open, epoch=epoch), names)
                places = dict(zip(names, opened, strict=True))
            assert all(each.is_over for each in lost), begun
            assert {place.epoch for place in places.values()} == {epoch}, begun
            for name in names:
                refs = bench.table(name).metadata.refs
                assert {ref for ref in refs if ref != "main"} == {places[name].branch}, begun

    @pytest.mark.usefixtures("_healed")
    def test_that_took_effect_is_recognised_though_others_cut_the_history(self, bench: Bench, proxy: Faulty) -> None:
        """A note shows that it took effect, and its own mark is remembered. Another pipeline's mark is not carried over
        the cut, because that pipeline may have committed more since. But that it wrote to the table stays known."""
        alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
        other = PipelineTables(connection_to(bench.uri), "other")

        def append(lake: PipelineTables, place: Position, number: int, done: Offsets) -> Position:
            mark = Mark(Token(lake._pipeline, 1, place.epoch, number), SourceIdentity(), {}, done, {})
            return lake.publication.append(place, [{"n": number}], mark, {})

        def cut() -> None:
            for _ in range(2):
                bench.table(alone.table).overwrite(bench.table(alone.table).scan().to_arrow())
            table = bench.table(alone.table)
            held, expiry = (
                {ref.snapshot_id for ref in table.metadata.refs.values()},
                table.maintenance.expire_snapshots(),
            )
            for snapshot in table.metadata.snapshots:
                if snapshot.snapshot_id not in held:
                    expiry = expiry.by_id(snapshot.snapshot_id)
            expiry.commit()

        append(other, other.claim(alone.table, ())[0], 0, {("u", 0): 5})
        place, _ = alone.lake.claim(alone.table, ())
        lost = proxy.fail(RESET, when=AFTER, path="/t$", body='"ref-name":"main"', agent=PYICEBERG, meanwhile=cut)
        place = append(alone.lake, place, 1, {("t", 0): 1})
        assert lost.is_over
        assert place.held == {("t", 0): 1}
        place = append(alone.lake, place, 2, {("t", 0): 2})
        assert place.held == {("t", 0): 2}
        assert sorted(row["n"] for row in bench.rows(alone.table)) == [0, 1, 2]
        state = other.find(alone.table)
        assert state
        assert other.seen(state).mark is None
        assert other.has_landed_in(state)

    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize("when", [BEFORE, AFTER])
    @pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
    def test_of_pyiceberg_survives_every_fault(
        self, bench: Bench, proxy: Faulty, request_: tuple[Callable[[Alone], None], Plan], when: When
    ) -> None:
        ask, plan = request_
        for said, fault in FAULTS.items():
            alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
            planned = proxy.fail(**fault, **plan, when=when)
            again(lambda: ask(alone))  # noqa: B023 - called at once
            assert planned.is_over, said

    @pytest.mark.usefixtures("_healed")
    @pytest.mark.parametrize("asked", ["branch", "column", "properties", "rows"])
    def test_to_a_replica_that_does_not_know_the_table_is_repeated(
        self, bench: Bench, proxy: Faulty, asked: str
    ) -> None:
        """Its 404 to a commit does not mean that the table was dropped: another look shows it."""
        ask, plan = REQUESTS[asked]
        alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
        planned = proxy.fail(404, **plan)
        again(lambda: ask(alone))
        assert planned.is_over

    @pytest.mark.usefixtures("_healed")
    def test_that_claims_an_epoch_recognises_its_own_earlier_try(self, bench: Bench, proxy: Faulty) -> None:
        """A proxy may repeat a request. The epoch that is there then is our own, not that of a newer start."""
        alone = Alone(bench, proxy, f"alone_{next(NUMBERS)}")
        branch: Plan = {"path": "/t$", "body": '"ref-name":"ingest_'}
        proxy.fail(409, **branch, times=5)
        heard = proxy.fail(409, **branch, when=AFTER)
        place, _ = alone.lake.claim(alone.table, ())
        epoch = place.epoch
        assert heard.is_over
        assert place.branch in bench.table(alone.table).metadata.refs
        assert place.epoch == epoch


def again(do: Callable[[], None], starts: int = 3) -> None:
    for start in range(1, starts + 1):
        try:
            return do()
        except TryAgain:
            if start == starts:
                raise
    return None
