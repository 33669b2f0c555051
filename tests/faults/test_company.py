"""Others work on the same tables while a pipeline runs: maintenance, writers, a second driver, changes of the layout.

Every offset ends in exactly one place, or the pipeline stops and says what it found and what to do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from threading import Event
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyiceberg.types import StringType
from pyspark.errors import PySparkException

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import Superseded, TableChanged
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.tables import PipelineTables, Position, TableSpec, TableState
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.flow import LANDING, Flow, is_proven
from tests.services.ingesting import Bench
from tests.services.pipelines import until
from tests.services.readers import Coordinates

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]


REST_S = 0.5  # of each loop: its work is Spark's as well, and on two cores nobody else would get any done


# -- maintenance and writers ------------------------------------------------------------------------------

Deed = Callable[[Bench, str], None]


def compact(bench: Bench, table: str) -> None:
    everything = "options => map('rewrite-all','true')"
    with suppress(Py4JError, PySparkException):  # the pipeline came first
        bench.spark.sql(f"CALL {LAKE}.system.rewrite_data_files(table => '{table}', {everything})").collect()


def expire(bench: Bench, table: str) -> None:
    everything = "retain_last => 1, older_than => now()"
    with suppress(Py4JError, PySparkException):
        bench.spark.sql(f"CALL {LAKE}.system.expire_snapshots(table => '{table}', {everything})").collect()


def append(bench: Bench, table: str) -> None:
    there = bench.table(table)
    # Others came first, or removed what it stood upon.
    with suppress(CommitFailedException, ValidationException, FileNotFoundError):
        there.append(pa.Table.from_pylist([{"type": "foreign"}], schema=there.schema().as_arrow()))


@contextmanager
def all_the_time(bench: Bench, table: str, *deeds: Deed) -> Iterator[Counter[str]]:
    """Each in a loop of its own."""
    stop, done = Event(), Counter[str]()

    def repeat(deed: Deed) -> None:
        while not stop.wait(REST_S):
            deed(bench, table)
            done[deed.__name__] += 1

    with ThreadPoolExecutor(len(deeds)) as threads:
        loops = [threads.submit(repeat, deed) for deed in deeds]
        try:
            yield done
        finally:
            stop.set()
    for loop in loops:
        loop.result()


def ours(flow: Flow) -> Coordinates:
    while True:
        with suppress(FileNotFoundError):  # others expire what refers to files while these are read
            return flow.bench.places(*flow.tables)


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, table: str, do: Callable[[], None]) -> Iterator[list[str]]:
    """`do` once when that table's files are written, and before they are committed."""
    land, done = OnBranch.land, list[str]()

    def landed(way: OnBranch, place: Position, *rest: Any) -> Position:
        if place.table == table and not done:
            done.append(table)
            do()
        return land(way, place, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(OnBranch, "land", landed)
        yield done


def rename(table: Table) -> None:
    with table.update_schema() as change:
        change.rename_column("n", "m")


def drop(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("n")


def require(table: Table) -> None:
    """What no record has."""
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("must", StringType(), required=True)


def repartition(table: Table) -> None:
    with table.update_spec() as change:
        change.add_identity("type")


def as_before(table: Table) -> None:
    with table.update_spec() as change:
        change.remove_field("type")


class TestPipeline:
    @pytest.mark.parametrize(
        ("deeds", "batches"),
        [
            pytest.param((compact, expire, append), 2, id="two batches"),
            pytest.param(
                (compact, expire, append, append, append),
                20,
                id="many",
                marks=[pytest.mark.long, pytest.mark.timeout(1_200)],
            ),
        ],
    )
    def test_goes_on_beside_constant_maintenance_and_writers(
        self, bench: Bench, deeds: tuple[Deed, ...], batches: int
    ) -> None:
        """Main's history is cut again and again, and another commit is always there first. Ours still succeed, and no
        start reads everything again."""
        flow = Flow(bench, bench.uri)
        with flow.running(), all_the_time(bench, f"{flow.namespace}.a", *deeds) as done:
            for _ in range(batches):
                began = monotonic()
                flow.produce()
                assert until(lambda: flow.end.done() or ours(flow) == flow.produced, LANDING, 0.2), flow.heard
                if flow.end.done():
                    flow.end.result()
                print(f"landed after {monotonic() - began:.1f} s, {dict(done)}, {len(flow.heard.refusals)} refused")
            print(flow.heard.retries)
        assert all(done[deed.__name__] for deed in deeds)
        bench.ingest(flow.direct)
        assert ours(flow) == flow.produced
        is_proven(flow.direct)

    def test_commits_its_files_though_the_history_was_cut_before(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A missing mark does not mean another writer: the written files are committed without another start."""
        flow = Flow(bench, bench.uri)
        table = f"{flow.namespace}.a"
        with flow.running():
            with before_commit(monkeypatch, table, lambda: bench.compact_and_expire(table)) as done:
                flow.survives()
            assert done
            assert not flow.heard.retries
            flow.survives()
        flow.drain()
        is_proven(flow.direct)

    @pytest.mark.parametrize(
        ("change", "written"),
        [
            (rename, True),
            (require, False),
            pytest.param(rename, False, marks=pytest.mark.long),
            pytest.param(drop, True, marks=pytest.mark.long),
            pytest.param(drop, False, marks=pytest.mark.long),
            pytest.param(require, True, marks=pytest.mark.long),
        ],
    )
    def test_goes_on_after_others_change_columns(
        self, bench: Bench, change: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch, *, written: bool
    ) -> None:
        """Later records create the column again, or are dead-lettered. Files that no longer fit are written again."""
        flow = Flow(bench, bench.uri)
        name = f"{flow.namespace}.a"
        with flow.running(), ExitStack() as patched:
            if written:
                patched.enter_context(before_commit(monkeypatch, name, lambda: change(bench.table(name))))
            else:
                change(bench.table(name))
            flow.survives()
            flow.survives()
        flow.drain()
        is_proven(flow.direct)

    @pytest.mark.parametrize(
        "written", [pytest.param(False, marks=pytest.mark.long), True], ids=["between batches", "before a commit"]
    )
    def test_stops_when_others_change_the_partitions(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, *, written: bool
    ) -> None:
        """Files have the layout that the table had when they were planned, so a running pipeline stops at its next
        commit. No start begins on a layout that its settings don't name, and the message says what they should name."""
        flow = Flow(bench, bench.uri)
        name = f"{flow.namespace}.a"
        stopped = pytest.raises(TableChanged, match=r"partitioned by .*type.*: change `partition_by`, or name another")

        def harm() -> None:
            repartition(bench.table(name))
            bench.table(name).overwrite(bench.table(name).scan().to_arrow())

        with stopped, flow.running(), before_commit(monkeypatch, name, harm) if written else nullcontext():
            if not written:
                repartition(bench.table(name))
            flow.produce()
            assert until(flow.end.done, LANDING)
        with stopped:
            bench.ingest(flow.direct)
        as_before(bench.table(name))
        flow.drain()
        is_proven(flow.direct)


class TestDriver:
    def test_that_is_replaced_in_its_first_batch_loses_and_doubles_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next driver looked where to begin before there was a table, and finds one that holds rows by now."""
        flow = Flow(bench, bench.uri)
        flow.produce()
        create, first, second = PipelineTables.create, Event(), Event()
        table = f"{flow.namespace}.a"
        replaced = bench.pipeline(flow.direct, drain=False)

        def slowly(lake: PipelineTables, spec: TableSpec) -> TableState:
            if spec.name == table and not first.is_set():
                first.set()
                assert second.wait(LANDING)
            elif spec.name == table and not second.is_set():
                second.set()
                assert isinstance(run.exception(LANDING), Superseded)
            return create(lake, spec)

        monkeypatch.setattr(PipelineTables, "create", slowly)
        with ThreadPoolExecutor(1) as threads:
            run = threads.submit(replaced.run)
            try:
                assert first.wait(LANDING)
                bench.ingest(flow.direct)
            finally:
                second.set()
                replaced.stop.set()
        assert second.is_set()
        flow.check()
        is_proven(flow.direct)

    def test_that_starts_last_ends_the_others(self, bench: Bench) -> None:
        """The last one to start goes on. The others end and change nothing, however many begin at once."""
        flow = Flow(bench, bench.uri)
        flow.produce()
        with ThreadPoolExecutor(4) as threads:
            pipelines: list[Pipeline] = []
            runs: list[Future[None]] = []

            def start(count: int) -> None:
                new = [bench.pipeline(flow.direct, drain=False) for _ in range(count)]
                pipelines.extend(new)
                runs.extend(threads.submit(pipeline.run) for pipeline in new)

            try:
                start(1)
                assert until(flow.landed, LANDING, 0.05)
                for count in (1, 2):
                    flow.produce()
                    start(count)
                    assert until(lambda: sum(run.done() for run in runs) == len(runs) - 1, LANDING), runs
                    assert until(flow.landed, LANDING, 0.05)
            finally:
                for pipeline in pipelines:
                    pipeline.stop.set()
            ended = [run.exception(LANDING) for run in runs]
        assert Counter(type(each) for each in ended) == {type(None): 1, Superseded: 3}, ended
        flow.check()
        is_proven(flow.direct)
