"""What a task keeps, sets aside and gives up, and what Spark's query is told while it ends."""

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog import CatalogClient, Column, TableSpec, create_table, ensure_namespace, table_files
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline import task
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.task import Receipt, RouteWork, Work, do, first_of
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import TablePlan
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.table_plans import plan_from_settings, plan_that_stands, spec
from lakehouse_ingest.settings import Settings, TableSettings
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Share
from lakehouse_ingest.stages.routing import Route
from lakehouse_ingest.stages.tally import FILTERED, LANDED
from tests.services.sqlite_catalog import sqlite_catalog

TYPES, EACH = 5, 40


def records(share: Share, first: int, values: list[str]) -> Records:
    """Records of the share's partition from an offset on."""
    columns = {
        "offset": range(first, first + len(values)),
        "timestamp": [0] * len(values),
        "value": [each.encode() for each in values],
    }
    rows = [pa.array(columns.get(each.name, [None] * len(values)), each.type) for each in RECORD_SCHEMA]
    return Records(share.topic, share.partition, "log", pa.RecordBatch.from_arrays(rows, schema=RECORD_SCHEMA))


@dataclass
class Read:
    """A reader of these records, in this order."""

    chunks: list[Records]

    def read_all(self, shares: list[Share]) -> Any:
        del shares
        yield from self.chunks


class Given:
    """A reader of records that are there already, in chunks of ten."""

    def read_all(self, shares: list[Share]) -> Any:
        (share,) = shares
        for first in range(share.start, share.end, 10):
            yield records(share, first, [json.dumps({"type": f"kind_{n % TYPES}"}) for n in range(first, first + 10)])


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    client = CatalogClient(sqlite_catalog(tmp_path))
    ensure_namespace(client, "ns")
    return client


@pytest.fixture
def work(client: CatalogClient) -> Work:
    columns = tuple(Column(each.name, each.iceberg, each.required) for each in dead_letters.COLUMNS)
    create_table(client, TableSpec("ns.dead_letters", columns))
    stream = {"topics": ["t"], "type_from": "field:type", "tables": [{"table": "{type}"}]}
    settings = Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0]
    nowhere = Fault(Reason.TOO_MANY_TABLES, "no more tables", "route", "")
    letters = table_files(client, "ns.dead_letters")
    return Work("plant", 1, 0, settings, cast("Any", Given()), {}, letters, unasked=nowhere, imagined=True)


def known(client: CatalogClient, name: str, **settings: Any) -> RouteWork:
    """A table that exists."""
    of_table = TableSettings.model_validate(settings)
    state = create_table(client, spec(TablePlan(name, plan_from_settings(name, of_table), None, "iso"), of_table))
    return RouteWork(RoutePlan(plan_that_stands(state, of_table)), table_files(client, name))


class TestDeadLettersOfATask:
    def done(self, work: Work) -> Receipt:
        found = do(work, 0, 0, [Share("t", 0, 0, TYPES * EACH)])
        assert found.error is None
        return found

    @pytest.mark.parametrize("most", [0, 2_000, 2**30])
    def test_are_kept_up_to_a_bound_over_all_tables(
        self, work: Work, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "KEPT_LETTERS", most)
        parts = self.done(work).parts
        assert len(parts) == TYPES
        kept = {way: sum(map(len, part.letters)) for way, part in parts.items()}
        written = {way: sum(file.record_count for file in part.letter_files) for way, part in parts.items()}
        assert {kept[way] + written[way] for way in parts} == {EACH}
        assert sum(rows.nbytes for part in parts.values() for rows in part.letters) <= most
        assert bool(sum(written.values())) == (most < 2**30)

    @pytest.mark.parametrize("most", [2_000, 2**30])
    def test_are_those_of_the_same_parts_on_the_driver(
        self, work: Work, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "KEPT_LETTERS", most)

        def kept(receipt: Receipt) -> dict[object, list[object]]:
            return {
                way: [row for rows in part.letters for row in rows.to_pylist()] for way, part in receipt.parts.items()
            }

        sent = self.done(work)
        before = kept(sent)
        assert kept(pickle.loads(pickle.dumps(sent))) == before == kept(sent)
        assert len({*map(str, before.values())}) > 1

    def test_of_a_route_for_every_record_travel_in_few_bytes(self, work: Work) -> None:
        """A table for each would take five times as many, and all the time of the batch."""
        sent = self.done(work)
        letters = [rows for part in sent.parts.values() for rows in part.letters]
        assert len(letters) > TYPES
        assert len(pickle.dumps(sent)) < sum(len(pickle.dumps(rows)) for rows in letters) / 2


class TestFirstFault:
    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
    def test_is_the_one_at_the_lowest_offset_in_whatever_order_records_come(
        self, work: Work, order: tuple[int, ...]
    ) -> None:
        low, high = Share("t", 0, 0, 40), Share("t", 1, 0, 40)
        chunks = [records(low, 20, ['{"', "[]"]), records(low, 30, ['"']), records(high, 5, ["nothing"])]
        found = do(replace(work, reader=cast("Any", Read([chunks[at] for at in order]))), 0, 0, [low, high])
        assert found.error is None
        fault = first_of(part.first_fault for part in found.parts.values())
        assert fault is not None
        assert (fault[0], fault[1], fault[2].reason) == (low, 20, Reason.BROKEN)


class TestValueWithoutAPartition:
    def test_is_a_dead_letter_and_the_other_rows_are_written(self, work: Work, client: CatalogClient) -> None:
        columns = [{"name": "v", "type": "decimal(3,1)"}]
        route, table = Route(0), known(client, "ns.all", columns=columns, partition_by=["truncate(7, v)"])
        share = Share("t", 0, 0, 3)
        given = Read([records(share, 0, ['{"v": 1.5}', '{"v": -99.9}', '{"v": -99.4}'])])
        stream = Settings.model_validate(
            {"name": "plant", "streams": [{"topics": ["t"], "tables": [{"table": "all"}]}]}
        ).streams[0]
        wanted = replace(work, stream=stream, reader=cast("Any", given), routes={route: table}, imagined=False)
        found = do(wanted, 0, 0, [share])
        assert found.error is None
        part = found.parts[route]
        assert part.failure is None
        assert {file.partition: file.record_count for file in part.files} == {
            (Decimal("1.4"),): 1,
            (Decimal("-99.4"),): 1,
        }
        assert +part.counts[share].outcomes == Counter({LANDED: 2, str(Reason.OUT_OF_RANGE): 1})


class TestRouteWithNews:
    """Four chunks of ten records, of which some have a field that the table lacks."""

    SHARE, ROUTE = Share("t", 0, 0, 40), Route(0)

    def done(self, work: Work, client: CatalogClient, texts: list[str], **changes: Any) -> Receipt:
        table = known(client, "ns.all", columns=[{"name": "a", "type": "int"}], partition_by=[])
        follows = replace(table, plan=replace(table.plan, following=Following()))
        stream = Settings.model_validate(
            {"name": "plant", "streams": [{"topics": ["t"], "tables": [{"table": "all"}]}]}
        ).streams[0]
        given = Read([records(self.SHARE, at, texts[at : at + 10]) for at in range(0, len(texts), 10)])
        wanted = replace(work, stream=stream, reader=cast("Any", given), routes={self.ROUTE: follows}, imagined=False)
        found = do(replace(wanted, **changes), 0, 0, [self.SHARE])
        assert found.error is None
        return found

    def test_tells_of_all_of_it_and_keeps_nothing(self, work: Work, client: CatalogClient, tmp_path: Path) -> None:
        """News of the first chunk and of a later one: also of a value that needs a wider type."""
        texts = [json.dumps({"a": n}) for n in range(38)] + ["{", "[]"]
        texts[3], texts[25], texts[31] = '{"a": 1, "b": 2}', '{"a": 1, "c": "x"}', '{"a": 5000000000}'
        part = self.done(work, client, texts).parts[self.ROUTE]
        seen = SeenFields()
        for each in (texts[3], texts[25], texts[31]):
            seen.add(json.loads(each))
        assert part.news == seen
        assert (part.files, part.letters, part.counts[self.SHARE].outcomes) == (
            (),
            [],
            Counter({LANDED: 0, FILTERED: 0}),
        )
        assert [*tmp_path.rglob("data/*.parquet")] == []

    def test_is_all_that_a_look_tells_of(self, work: Work, client: CatalogClient, tmp_path: Path) -> None:
        texts = [json.dumps({"a": n}) for n in range(38)] + ["{", "[]"]
        texts[25] = '{"a": 1, "c": "x"}'
        look = {"looks": True, "only": frozenset([self.ROUTE])}
        part = self.done(work, client, texts, **look).parts[self.ROUTE]
        assert part.news is not None
        assert {*part.news.fields} == {"a", "c"}
        assert (part.files, part.letters, part.samples) == ((), [], {})
        assert [*tmp_path.rglob("data/*.parquet")] == []


@contextmanager
def silent_store() -> Iterator[tuple[str, list[str]]]:
    """A store that takes every request and answers none; its address, and the paths that it was asked for."""
    asked = list[str]()

    class Silent(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.close_connection = True  # it could as well let the client wait, which takes the test longer

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD  # noqa: N815 - as the library has them

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


class TestStoreThatIsAway:
    def test_is_waited_for_once_and_not_for_each_table(self, work: Work, client: CatalogClient) -> None:
        keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "client.region": "us-east-1"}
        few = {"s3.retry-strategy-impl": "pyarrow.fs.AwsStandardS3RetryStrategy"}  # or it asks for six seconds
        routes, share = {}, Share("t", 0, 0, TYPES * EACH)
        with silent_store() as (uri, asked):
            for kind in (f"kind_{n}" for n in range(TYPES)):
                made = known(client, f"ns.{kind}", columns=[{"name": "type", "type": "string"}], partition_by=[])
                store = {"s3.endpoint": uri, **keys, **few}
                files = replace(made.files, location=f"s3://bucket/{kind}", io_properties=store)
                routes[Route(0, type=kind)] = replace(made, files=files)
            found = do(replace(work, routes=routes, imagined=False), 0, 0, [share])
        assert isinstance(found.error, TryAgain)
        assert re.fullmatch(r"writing files of table ns\.kind_\d: [^\n]*; see `s3.endpoint`[^\n]*", str(found.error))
        assert len({path.split("/")[2] for path in asked}) == 1, asked


class TestQueryThatIsToEnd:
    @pytest.mark.parametrize("number", [0, 3])
    def test_may_call_for_more_batches(self, number: int) -> None:
        start = cast("OneStart", SimpleNamespace(_closing=Event(), of=SimpleNamespace(has_enough=False)))
        start._closing.set()
        assert OneStart._next(start, cast("Any", SimpleNamespace(batches=0)), number) is None

    def test_otherwise_runs_no_batch_out_of_turn(self) -> None:
        start = cast("OneStart", SimpleNamespace(_closing=Event()))
        with pytest.raises(TryAgain, match="Spark runs batch 3 of a query that has finished 0"):
            OneStart._next(start, cast("Any", SimpleNamespace(batches=0)), 3)
