"""`catalog.publish = "direct"`: the same promises with a catalog that allows no ref but main, and between both ways."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from catalog import FileLayout, connect
from catalog.commits import written_files
from lakehouse_ingest.errors import LONGEST, SettingsRefused, Superseded
from lakehouse_ingest.ledger.keys import FENCE, TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Column, PipelineTables, Position, TableSpec
from lakehouse_ingest.tables.publishing import BatchFiles
from tests.services.doors import connection_to
from tests.services.faulty import AFTER, BEFORE, NOTHING, RESET, Faulty
from tests.services.flow import LANDING, Flow
from tests.services.ingesting import Bench, spark_by
from tests.services.landings import receipt_of
from tests.services.main_only import MainOnly
from tests.services.pipelines import until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

LANDING_OF_A: dict[str, Any] = {"path": "/tables/a$", "body": '"ref-name":"main"'}


@pytest.fixture
def gate(rest_uri: str) -> Iterator[MainOnly]:
    with MainOnly(rest_uri) as opened:
        yield opened


@pytest.fixture
def proxy(rest_uri: str) -> Iterator[Faulty]:
    with Faulty(rest_uri) as opened:
        yield opened


def ours(flow: Flow, table: str) -> list[Any]:
    """Main's snapshots that landed something, newest first."""
    found = [dict(each.summary.additional_properties) for each in flow.bench.published(f"{flow.namespace}.{table}")]
    return [summary for summary in found if summary.get(TOKEN, "").startswith(flow.name)]


class TestCatalogWithoutBranches:
    def test_is_refused_with_the_setting_that_helps(self, bench: Bench, gate: MainOnly) -> None:
        flow = Flow(bench, gate.uri)
        with (
            spark_by(bench.spark, flow.through),
            pytest.raises(SettingsRefused, match=r"catalog\.publish.*direct") as told,
        ):
            bench.ingest(flow.through)
        assert len(str(told.value)) <= LONGEST
        assert gate.refused == [f"ingest_{flow.name}_1"]

    def test_gets_everything_once_with_direct_publishing(self, bench: Bench, gate: MainOnly) -> None:
        """Two tables and dead letters; another commit between our look and our commit; a second start."""
        flow = Flow(bench, gate.uri, publish="direct")
        with flow.running():
            before = ours(flow, "a")
            flow.survives(gate.fail(NOTHING, when=BEFORE, **LANDING_OF_A, meanwhile=lambda: flow.compact("a")))
            now = ours(flow, "a")
            assert len(now) > len(before)
            assert len(now) == len({each[TOKEN] for each in now}), "refused, and committed once: the same files"
        with spark_by(bench.spark, flow.through):
            flow.produce()
            bench.ingest(flow.through)
        flow.check()
        assert [each.code for each in prove(flow.through)] == [PROVEN]
        assert not gate.refused
        for name in (*flow.tables, f"{flow.namespace}.lakehouse_batches"):
            assert bench.table(name).metadata.refs.keys() == {"main"}
            fences = [each for each in bench.published(name) if FENCE in each.summary.additional_properties]
            assert {each.summary[FENCE] for each in fences} == {f"{flow.name}/1", f"{flow.name}/2"}
            assert len(fences) == 2, "one a start"

    @pytest.mark.long
    def test_gets_everything_once_though_answers_are_lost(self, bench: Bench, gate: MainOnly) -> None:
        flow = Flow(bench, gate.uri, publish="direct")
        record = {"path": "/lakehouse_batches$", "body": '"ref-name":"main"'}
        with flow.running():
            for status, when, commit in product((503, 409, RESET), (BEFORE, AFTER), (LANDING_OF_A, record)):
                flow.survives(gate.fail(status, when=when, **commit))
            flow.survives(gate.fail(RESET, when=AFTER, **{**LANDING_OF_A, "path": "/tables/later$"}), kind="later")
            flow.survives(gate.fail(RESET, when=BEFORE, **LANDING_OF_A, meanwhile=lambda: flow.compact("a")))
        flow.drain()
        assert not gate.refused


WAYS = [
    ("direct", "direct"),
    pytest.param("direct", "branch", marks=pytest.mark.long),
    pytest.param("branch", "direct", marks=pytest.mark.long),
]


class TestOlderStart:
    @pytest.mark.parametrize(("way", "then"), [*product(["branch", "direct"], repeat=2)])
    def test_adds_nothing_once_a_newer_one_has_begun(self, rest_uri: str, way: str, then: str) -> None:
        """The newer start has only fenced the table. Then it commits there, and other starts follow."""
        pipeline, name, past = f"{way}_then_{then}", f"ns_begun.{way}_{then}", connect(connection_to(rest_uri))

        def waiting(place: Position, number: int) -> BatchFiles:
            """What a task would have written."""
            written = written_files(past.table(name), [{"n": number}])
            return BatchFiles([receipt_of(each) for each in written], FileLayout(place.schema, place.spec))

        def mark(epoch: int) -> Mark:
            return Mark(Token(pipeline, 1, epoch, 0), SourceIdentity(), {}, {("t", 0): epoch}, {})

        old, new = (PipelineTables(connection_to(rest_uri), pipeline, each) for each in (way, then))
        old.ensure_namespace("ns_begun")
        old.create(TableSpec(name, (Column("n", "long"),)))
        place, _ = old.claim(name, ())
        epoch = place.epoch
        place = old.publication.land(place, waiting(place, 1), mark(epoch), {})
        late = waiting(place, 2)
        taken, _ = new.claim(name, ())
        newer = taken.epoch
        assert newer == epoch + 1
        assert taken.held == {("t", 0): epoch}
        for _ in range(2):
            with pytest.raises(Superseded, match=f"epoch {newer}"):
                old.publication.land(place, late, mark(epoch), {})
            with pytest.raises(Superseded, match=f"epoch {newer}"):
                old.publication.append(place, [{"n": 3}], mark(epoch), {})
        with pytest.raises(Superseded):
            old.claim(name, ())
        new.publication.land(taken, waiting(taken, 4), mark(newer), {})
        last, _ = PipelineTables(connection_to(rest_uri), pipeline, way).claim(name, ())
        assert (last.epoch, last.held) == (newer + 1, {("t", 0): newer})
        found = past.pyiceberg.load_table(name).scan().to_arrow()
        assert sorted(found["n"].to_pylist()) == [1, 4]

    @pytest.mark.parametrize(("way", "then"), WAYS)
    def test_adds_nothing_after_its_replacement_has_committed_everything(
        self, bench: Bench, proxy: Faulty, way: str, then: str
    ) -> None:
        """It is held up in the middle of a commit while a newer start writes everything. Each way fences both ways."""
        flow = Flow(bench, proxy.uri, publish=way)
        newer = _published(flow.through, then)
        with pytest.raises(Superseded, match="has taken over"), flow.running():  # noqa: PT012
            held_up = proxy.fail(NOTHING, when=BEFORE, **LANDING_OF_A, meanwhile=lambda: bench.ingest(newer))
            flow.produce()
            assert until(flow.end.done, LANDING)
        assert held_up.is_over
        flow.check()
        assert not _off_main(bench, f"{flow.namespace}.a"), "not even a snapshot that nobody reads"
        flow.drain()


def _published(settings: Settings, way: str) -> Settings:
    return settings.model_copy(update={"catalog": settings.catalog.model_copy(update={"publish": way})})


def _off_main(bench: Bench, name: str) -> list[int]:
    """Snapshots of landings that no ref leads to."""
    table = bench.table(name)
    main = {each.snapshot_id for each in bench.published(name)}
    main |= {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [
        each.snapshot_id
        for each in table.snapshots()
        if each.snapshot_id not in main and each.summary and each.summary[TOKEN]
    ]
