"""Fields that a contract rescues can be read by others, and become columns, beside the pipeline and after a crash."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.records import RESCUED
from lakehouse_ingest.settings import Settings
from tests.live.test_status import command, words
from tests.services.command import Command
from tests.services.doors import in_settings
from tests.services.faulty import AFTER, BEFORE, NOTHING, RESET, Faulty
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import Running, until
from tests.services.readers import Reader
from tests.services.verdicts import verdict_on

pytestmark = pytest.mark.live

__all__ = ["command"]  # a fixture

PATIENCE_S = 60.0


def values(*objects: dict[str, Any]) -> Iterable[tuple[None, bytes]]:
    return [(None, json.dumps(each).encode()) for each in objects]


ADDED = {"when": AFTER, "body": '"add-schema"'}
WRITTEN = {"when": BEFORE, "body": '"operation":"overwrite"'}
EXCHANGED = {**WRITTEN, "when": AFTER}


@pytest.fixture
def aside(bench: Bench, topic: str) -> Settings:
    """Of a table that has landed: three rows with fields set aside, each in a file of its own, and one without."""
    create_topic(bench.broker, topic, 1)
    columns = [{"name": "n", "type": "int"}]
    settings = bench.settings(topic, table={"contract": "freeze", "columns": columns, "partition_by": ["n"]})
    produce(bench.broker, topic, values(*({"n": n, "a": n, "b": n, "c": n} for n in range(3)), {"n": 3}))
    bench.ingest(settings)
    return settings


def through(proxy: Faulty, topic: str) -> list[str]:
    return ["--name", topic, "--topics", topic, "--namespace", f"ns_{topic}", "--catalog-uri", proxy.uri]


class TestRescuedFields:
    def test_are_read_by_another_engine_and_promoted_beside_a_running_pipeline(
        self, bench: Bench, topic: str, command: Command
    ) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, values({"n": 0, "place": {"lat": 1.5}}))
        settings = bench.settings(topic, table={"contract": "freeze"}, ledger={"batch_every": 0})
        table = f"ns_{topic}.{topic}"

        def rows() -> dict[int, tuple[Any, ...]]:
            found = sorted(bench.rows(table), key=lambda row: row["_source"]["offset"])
            return {
                row["_source"]["offset"]: (row["n"], row["place"], row.get("color_"), row[RESCUED]) for row in found
            }

        def promoted(field: str, *more: str) -> dict[str, Any]:
            said = command("promote", *words(bench, topic), "--table", topic, "--field", field, "--json", *more)
            assert said.code == 0, said.err
            # The pipeline of this process logs to the same place.
            found: dict[str, Any]
            found, _ = json.JSONDecoder().raw_decode(said.out, re.search(r"^\{", said.out, re.MULTILINE).start())  # type: ignore[union-attr]
            return found

        bench.ingest(settings)
        produce(
            bench.broker,
            topic,
            values(
                {"n": 1, "co lor": "red"},
                {"n": "two", "co lor": "blue"},
                {"n": 3, "co lor": 5, "place": {"lat": 2.5, "zone": "x"}},
                {"n": 4},
            ),
        )
        with running(bench.pipeline(settings, drain=False)):
            assert until(lambda: len(rows()) == 5, PATIENCE_S, 0.2)
            aside: dict[int, Any] = {0: None, 1: {"co lor": "red"}, 2: {"co lor": "blue", "n": "two"}, 4: None}
            aside[3] = {"co lor": 5, "place": {"lat": 2.5, "zone": "x"}}
            assert {at: row[-1] and json.loads(row[-1]) for at, row in rows().items()} == aside
            assert rows()[3][1] == {"lat": 2.5}, "what has a place is there"
            with Reader(bench.uri, f"ns_{topic}").duckdb() as duck:
                read = duck.sql(f"SELECT _rescued->>'co lor' FROM lake.{table} WHERE _rescued IS NOT NULL ORDER BY 1")
                assert [each for (each,) in read.fetchall()] == ["5", "blue", "red"]

            told = promoted("co lor", "--type", "string")
            assert (told["column"], told["new"], told["rows"], told["fitting"], told["filled"]) == (
                "co_lor",
                True,
                3,
                3,
                0,
            )
            assert "co_lor" not in bench.table(table).schema().column_names
            told = promoted("co lor", "--type", "string", "--yes")
            assert (told["new"], told["rows"], told["filled"]) == (True, 3, 3)
            colors = {row["_source"]["offset"]: row["co_lor"] for row in bench.rows(table)}
            assert colors == {0: None, 1: "red", 2: "blue", 3: "5", 4: None}
            aside = {0: None, 1: None, 2: {"n": "two"}, 3: {"place": {"lat": 2.5, "zone": "x"}}, 4: None}
            assert {at: row[-1] and json.loads(row[-1]) for at, row in rows().items()} == aside
            assert promoted("place.zone", "--yes")["filled"] == 1
            assert rows()[3][1] == {"lat": 2.5, "zone": "x"}
            assert rows()[3][-1] is None

            # The pipeline was there all the time. Its next batch may not know yet; the one after that does.
            for number in (5, 6):
                produce(bench.broker, topic, values({"n": number, "co lor": "green"}))
                assert until(lambda: len(rows()) == number + 1, PATIENCE_S, 0.2)  # noqa: B023 - called at once
            (last,) = [row for row in bench.rows(table) if row["_source"]["offset"] == 6]
            assert (last["co_lor"], last[RESCUED]) == ("green", None)
        verdict = verdict_on(settings)
        assert (verdict.code, verdict.offsets) == (PROVEN, 7)
        promoted("co lor", "--yes")
        assert {row["co_lor"] for row in bench.rows(table) if row["_source"]["offset"] > 4} == {"green"}
        assert verdict_on(settings).code == PROVEN
        bench.ingest(settings)
        assert bench.places(table) == {(topic, 0, offset): 1 for offset in range(7)}

    def test_are_promoted_with_declared_columns_and_without_branches(
        self, bench: Bench, topic: str, command: Command
    ) -> None:
        """With declared columns other fields are rescued as well, or refused if the contract says so."""
        create_topic(bench.broker, topic, 1)
        columns = [{"name": "n", "type": "int"}]
        settings = bench.settings(
            topic,
            catalog={**in_settings(bench.uri), "namespace": f"ns_{topic}", "publish": "direct"},
            table={"contract": "freeze", "contracts": {"secret": "refuse"}, "columns": columns, "partition_by": []},
            ledger={"batch_every": 0},
        )
        produce(bench.broker, topic, values({"n": 0, "a": 1}, {"n": 2**40}, {"n": 2, "secret": "x"}, {"n": 3}))
        assert bench.ingest(settings)
        table = f"ns_{topic}.{topic}"
        assert {row["n"]: row[RESCUED] for row in bench.rows(table)} == {
            None: '{"n":1099511627776}',
            0: '{"a":1}',
            3: None,
        }
        assert len(bench.rows(table)) == 3
        assert [row["reason"] for row in bench.rows(f"ns_{topic}.dead_letters")] == ["no_column"]
        said = command("promote", *words(bench, topic), "--table", topic, "--field", "a", "--yes")
        assert said.code == 0, said.err
        assert "+ a long in" in said.out
        assert "1 row was filled" in said.out
        bench.ingest(settings)
        assert verdict_on(settings).code == PROVEN


class TestPromotion:
    def test_that_is_killed_is_finished_by_the_next_one(
        self, bench: Bench, topic: str, command: Command, aside: Settings, tmp_path: Path
    ) -> None:
        """SIGKILL after the column was added, and before and after the one commit that exchanges the files."""
        table = f"ns_{topic}.{topic}"

        def killed(moment: Mapping[str, Any], promotion: list[str]) -> None:
            """The answer to its request is the last that it does not hear."""
            with Faulty(bench.uri) as proxy:
                proxy.fail(RESET, path=f"/tables/{topic}$", meanwhile=lambda: process.kill(), **moment)  # noqa: PLW0108 - it does not run yet
                command = [sys.executable, "-m", "lakehouse_ingest", *promotion, *through(proxy, topic)]
                process = Running(command, os.environ, tmp_path / "promote.log")
                assert process.wait() == -SIGKILL, process.tail()

        fields = {"a": (ADDED, 3), "b": (WRITTEN, 3), "c": (EXCHANGED, 0)}  # and how many rows are left to be filled
        for name, (moment, left) in fields.items():
            promotion = ["promote", "--table", topic, "--field", name, "--json", "--yes"]
            killed(moment, promotion)
            assert name in bench.table(table).schema().column_names
            assert {row[name] for row in bench.rows(table)} == ({None} if left else {0, 1, 2, None})
            said = command(*promotion, *words(bench, topic))
            assert said.code == 0, said.err
            assert json.loads(said.out)["filled"] == left
            assert sorted((row["n"], row[name]) for row in bench.rows(table)) == [(0, 0), (1, 1), (2, 2), (3, None)]
        assert {row[RESCUED] for row in bench.rows(table)} == {None}
        assert verdict_on(aside).code == PROVEN

    @pytest.mark.usefixtures("aside")
    def test_counts_only_the_rows_that_it_filled(self, bench: Bench, topic: str, command: Command) -> None:
        """Rows may be deleted while a refused commit is repeated."""
        table = f"ns_{topic}.{topic}"
        with Faulty(bench.uri) as proxy:
            gone = proxy.fail(
                NOTHING,
                path=f"/tables/{topic}$",
                body=WRITTEN["body"],
                meanwhile=lambda: bench.table(table).delete("n == 2"),
            )
            said = command("promote", *through(proxy, topic), "--table", topic, "--field", "a", "--json", "--yes")
            assert said.code == 0, said.err
            assert gone.is_over
        assert sorted((row["n"], row["a"]) for row in bench.rows(table)) == [(0, 0), (1, 1), (3, None)]
        assert json.loads(said.out)["filled"] == 2


class TestTableOfOthers:
    def test_is_widened_by_data_that_needs_it(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        bench.lake.create_namespace_if_not_exists(f"ns_{topic}")
        bench.spark.sql(
            f"CREATE TABLE lake.ns_{topic}.{topic} (n INT, d DECIMAL(4,2), s STRUCT<m: INT>,"
            " things MAP<STRING, STRUCT<d: DECIMAL(4,2)>>) USING iceberg"
        )
        settings = bench.settings(topic, table={"partition_by": []})
        produce(bench.broker, topic, values({"n": 1, "d": 1.5, "s": {"m": 1}, "things": {"x": {"d": 1.5}, "y": {}}}))
        bench.ingest(settings)

        def kinds() -> dict[str, str]:
            return {each.name: str(each.field_type) for each in bench.table(f"ns_{topic}.{topic}").schema().fields}

        assert (kinds()["n"], kinds()["d"]) == ("int", "decimal(4, 2)")
        more = {"x": {"d": 12345.5}, "y": {"new": 1}, "z": {"new": 1.5, "list": [1]}}
        produce(
            bench.broker, topic, values({"n": 2**40, "d": 12345.5, "s": {"m": -(2**40), "new": True}, "things": more})
        )
        bench.ingest(settings)
        assert (kinds()["n"], kinds()["d"]) == ("long", "decimal(7, 2)")
        found = bench.rows(f"ns_{topic}.{topic}")
        assert {row["n"] for row in found} == {1, 2**40}
        assert {row["s"]["m"] for row in found} == {1, -(2**40)}
        assert {row["s"]["new"] for row in found} == {None, True}
        things = {key: thing for row in found if row["n"] > 1 for key, thing in row["things"]}
        assert things == {
            "x": {"d": Decimal("12345.50"), "new": None, "list": None},
            "y": {"d": None, "new": 1.0, "list": None},
            "z": {"d": None, "new": 1.5, "list": [1]},
        }
        assert not bench.lake.table_exists(f"ns_{topic}.dead_letters") or not bench.rows(f"ns_{topic}.dead_letters")
