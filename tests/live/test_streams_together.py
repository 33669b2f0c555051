"""Streams of one process share a table, a batch log and the dead-letter table: they wait for each other."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Column, PipelineTables, TableSpec, Turns
from tests.services.doors import connection_to, in_settings
from tests.services.faulty import NOTHING, Faulty
from tests.services.flow import Heard
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live

BATCHES, IN_ONE, BROKEN = 3, 10, 2


def together(bench: Bench, topic: str, **catalog: str) -> Settings:
    """Two streams that feed one table, with a row of the batch record for each batch."""
    names = [f"{topic}_{letter}" for letter in "ab"]
    for name in names:
        create_topic(bench.broker, name, 1)
        refill(bench, name)
    return bench.settings(
        topic,
        catalog={**in_settings(bench.uri), "namespace": f"ns_{topic}", **catalog},
        streams=[
            {"topics": [name], "name": name[-1], "every": 0, "max_records": IN_ONE, "tables": [{"table": "shared"}]}
            for name in names
        ],
        ledger={"batch_every": 0},
    )


def refill(bench: Bench, name: str) -> None:
    values = ([json.dumps({"n": n}).encode() for n in range(IN_ONE - BROKEN)] + [b"{"] * BROKEN) * BATCHES
    produce(bench.broker, name, ((None, value) for value in values))


def has_all(bench: Bench, topic: str, batches: int) -> None:
    namespace = f"ns_{topic}"
    assert bench.places(f"{namespace}.shared", f"{namespace}.dead_letters") == Counter(
        {(f"{topic}_{letter}", 0, n): 1 for letter in "ab" for n in range(batches * IN_ONE)}
    )
    done = Counter(row["pipeline"] for row in bench.rows(f"{namespace}.lakehouse_batches") if row["kind"] == "batch")
    assert done == {f"{topic.lower()}-{letter}": batches for letter in "ab"}


class TestStreamsOfOneProcess:
    @pytest.mark.parametrize("publish", ["branch", pytest.param("direct", marks=pytest.mark.long)])
    def test_never_have_a_commit_refused_because_of_each_other(
        self, bench: Bench, topic: str, publish: str, rest_uri: str
    ) -> None:
        """No commit is refused because of a sibling. One that is refused because of a stranger is reported once."""
        settings = together(bench, topic, publish=publish)
        pipeline = bench.pipeline(settings)
        heard = Heard.of(pipeline)
        pipeline.run()
        assert (heard.refusals, heard.retries) == ([], [])
        has_all(bench, topic, BATCHES)
        if publish == "direct":
            return

        shared = f"ns_{topic}.shared"

        def beside() -> None:
            table = bench.table(shared)
            table.append(pa.Table.from_pylist([{"n": -1}], schema=table.schema().as_arrow()))

        for letter in "ab":
            refill(bench, f"{topic}_{letter}")
        with Faulty(rest_uri) as proxy:
            through = settings.catalog.model_copy(update={"uri": proxy.uri})
            stranger = proxy.fail(NOTHING, path="/tables/shared$", body='"ref-name":"main"', meanwhile=beside)
            pipeline = bench.pipeline(settings.model_copy(update={"catalog": through}))
            heard = Heard.of(pipeline)
            pipeline.run()
        assert stranger.is_over
        assert (heard.refusals, heard.retries) == ([shared], [])
        has_all(bench, topic, 2 * BATCHES)

    @pytest.mark.parametrize("streams", [15, pytest.param(50, marks=pytest.mark.long)])
    def test_share_a_batch_log_without_a_refused_commit(self, rest_uri: str, topic: str, streams: int) -> None:
        """All append to it at the same time: every row and every mark is there, and no commit was refused."""
        rounds, name = 2, f"ns_{topic}.record"
        refused, turns = list[str](), Turns()

        def lakes() -> Iterator[PipelineTables]:
            for number in range(streams):
                yield PipelineTables(
                    connection_to(rest_uri),
                    f"s{number}",
                    refused=lambda table, attempt, error: refused.append(f"{table} {attempt} {error}"),
                    turns=turns,
                )

        first, *others = lakes()
        first.ensure_namespace(f"ns_{topic}")
        first.create(TableSpec(name, (Column("n", "long"),)))

        def append(number: int, lake: PipelineTables) -> None:
            place, _ = lake.claim(name, ())
            epoch = place.epoch
            for batch in range(rounds):
                done = {("t", number): batch + 1}
                mark = Mark(Token(f"s{number}", 1, epoch, batch), SourceIdentity(), {}, done, done)
                place = lake.publication.append(place, [{"n": number}], mark, {})
                assert place.held == done

        with ThreadPoolExecutor(streams) as threads:
            list(threads.map(append, range(streams), [first, *others]))
        assert refused == []
        found = first.find(name)
        assert found
        assert found.main is not None
        summary = found.snapshots[found.main].summary
        assert {key for key in summary if key.startswith(MARK)} == {f"{MARK}s{number}" for number in range(streams)}
        assert summary["total-records"] == str(streams * rounds)
