"""Tables that others have created are used as they are, or refused with the reason. `plan` says so beforehand."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, UUIDType
from structlog.testing import capture_logs

from catalog import Column, TableSpec, apply, connect, load, plan
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import LakehouseError, NeedsOperator
from lakehouse_ingest.pipeline.dry_run import foresee
from lakehouse_ingest.settings import Settings
from tests.services.doors import connection_to
from tests.services.faulty import NOTHING, Faulty
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live

MADE = 1_750_000_000_000
COLUMNS = "n BIGINT, place STRUCT<lat: DOUBLE>, event_time TIMESTAMP"
TIME = {"event_time": "ts_ms", "event_time_unit": "ms"}  # else their column event_time would be filled by such a field
RETENTION = "'history.expire.max-snapshot-age-ms' = '1', 'history.expire.min-snapshots-to-keep' = '1'"
# By the type of the records that they get: what is behind the columns of CREATE TABLE.
OTHERS = {
    "v1": "PARTITIONED BY (days(event_time)) TBLPROPERTIES ('format-version' = '1')",
    "v3": "TBLPROPERTIES ('format-version' = '3')",
    "sorted": "",
    "deleted": "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "brief": f"TBLPROPERTIES ({RETENTION})",
    "orc": "TBLPROPERTIES ('write.format.default' = 'orc')",
    "hashed": "PARTITIONED BY (days(event_time)) TBLPROPERTIES ('write.distribution-mode' = 'hash')",
}


def sql(bench: Bench, text: str) -> None:
    bench.spark.sql(text).collect()


def made_by_others(bench: Bench, topic: str) -> str:
    """Each with three rows of theirs."""
    namespace = f"{LAKE}.ns_{topic}"
    sql(bench, f"CREATE NAMESPACE {namespace}")
    for name, how in OTHERS.items():
        sql(bench, f"CREATE TABLE {namespace}.{name} ({COLUMNS}) USING iceberg {how}")
    sql(bench, f"CREATE TABLE {namespace}.needed (n BIGINT NOT NULL, note STRING NOT NULL, event_time TIMESTAMP)")
    sql(bench, f"ALTER TABLE {namespace}.sorted WRITE ORDERED BY n DESC")
    for name in OTHERS:
        rows = ", ".join(f"({n}, named_struct('lat', 1.5D), TIMESTAMP '2024-01-01')" for n in (-3, -2, -1))
        sql(bench, f"INSERT INTO {namespace}.{name} VALUES {rows}")
    sql(bench, f"DELETE FROM {namespace}.deleted WHERE n = -2")
    return namespace


def settings(bench: Bench, topic: str, *tables: dict[str, Any]) -> Settings:
    plain = bench.settings(topic, stream={"type_from": "field:type"}).model_dump(exclude_unset=True)
    plain["streams"][0]["tables"] = [*tables]
    return Settings.model_validate(plain)


def events(kinds: list[str], numbers: range) -> list[tuple[None, bytes]]:
    return [
        (None, json.dumps({"type": kind, "n": n, "ts_ms": MADE + n, "place": {"lat": 0.5, "lon": n}}).encode())
        for n in numbers
        for kind in kinds
    ]


def _filled(bench: Bench, name: str, rows: int) -> None:
    """A default is what Spark reads in rows from before the column."""
    lake = connect(connection_to(bench.uri))
    apply(lake, name, plan(load(lake, name), TableSpec(name, (Column("site", "string", default="north"),))))
    lake.close()
    assert [row["site"] for row in bench.spark.table(f"{LAKE}.{name}").collect()] == ["north"] * rows


class TestTableOfOthers:
    def test_is_used_as_it_is_and_only_added_to(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        namespace = made_by_others(bench, topic)
        kinds = [*OTHERS, "needed"]
        daily = ["v1", "hashed"]
        wanted = settings(
            bench,
            topic,
            {"table": "{type}", "types": daily, **TIME},
            {
                "table": "{type}",
                "types": [kind for kind in kinds if kind not in daily],
                "partition_by": [],
                **TIME,
            },
        )
        produce(bench.broker, topic, events(kinds, range(5)))
        before = {kind: bench.table(f"ns_{topic}.{kind}").metadata for kind in kinds}
        found = foresee(bench.pipeline(wanted), None)
        assert found.streams[0].refusal is None
        told = {each.after.name.rpartition(".")[2]: [str(change) for change in each.changes] for each in found.tables}
        bench.ingest(wanted)
        sql(bench, f"CALL {LAKE}.system.expire_snapshots(table => 'ns_{topic}.brief', retain_last => 1)")
        produce(bench.broker, topic, events(kinds, range(5, 9)))
        bench.ingest(wanted)
        for kind in OTHERS:
            table = bench.table(f"ns_{topic}.{kind}")
            assert table.metadata.format_version == before[kind].format_version
            assert table.metadata.spec() == before[kind].spec()
            assert table.metadata.sort_order() == before[kind].sort_order()
            assert {"+ place.lon long", "+ type string"} <= {*told[kind]}, kind
            rows = bench.spark.table(f"{namespace}.{kind}").select("n", "place.lat").collect()
            theirs = {-3: 1.5, -1: 1.5} | ({} if kind == "deleted" else {-2: 1.5})
            assert sorted(row["n"] for row in rows) == sorted([*theirs, *range(9)]), kind
        _filled(bench, f"ns_{topic}.v3", rows=12)
        letters = bench.rows(f"ns_{topic}.dead_letters")
        assert Counter(row["reason"] for row in letters) == {"missing_field": 9}
        assert found.streams[0].seen.tally.dead == {"missing_field": 5}

    def test_of_version_3_may_have_busy_neighbours(self, bench: Bench, topic: str, rest_uri: str) -> None:
        """It may be empty, and commits that they overtake are repeated. Each row has a number of its own."""
        create_topic(bench.broker, topic, 1)
        sql(bench, f"CREATE NAMESPACE {LAKE}.ns_{topic}")
        table = f"{LAKE}.ns_{topic}.others"
        sql(bench, f"CREATE TABLE {table} (n BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
        with Faulty(rest_uri) as proxy:
            plain = settings(bench, topic, {"table": "others", "partition_by": []})
            through = plain.catalog.model_copy(update={"uri": proxy.uri})
            wanted = plain.model_copy(update={"catalog": through})
            for numbers, theirs in ((range(5), -1), (range(5, 9), -2)):
                produce(bench.broker, topic, ((None, json.dumps({"n": n}).encode()) for n in numbers))
                insert = partial(sql, bench, f"INSERT INTO {table} (n) VALUES ({theirs})")
                beside = proxy.fail(NOTHING, path="/tables/others$", body='"ref-name":"main"', meanwhile=insert)
                bench.ingest(wanted)
                assert beside.is_over
        rows = bench.spark.table(table).select("n", "_row_id").collect()
        assert sorted(row["n"] for row in rows) == [-2, -1, *range(9)]
        assert len({row["_row_id"] for row in rows} - {None}) == len(rows)

    @pytest.mark.parametrize(
        ("columns", "layout", "said"),
        [
            ("n BIGINT, event_time TIMESTAMP", "PARTITIONED BY (hours(event_time))", "is partitioned by"),
            (
                "n BIGINT, event_time TIMESTAMP, id BINARY",
                "PARTITIONED BY (days(event_time), bucket(4, n))",
                "the settings say",
            ),
            (
                "n BIGINT, ts_ms BIGINT, event_time TIMESTAMP",
                "PARTITIONED BY (days(event_time))",
                "set `event_time_unit`",
            ),
        ],
        ids=["coarser", "finer", "unit"],
    )
    def test_that_does_not_fit_is_refused_before_anything_is_written(
        self, bench: Bench, topic: str, columns: str, layout: str, said: str
    ) -> None:
        """By `plan` as by `run`, before anything is written."""
        create_topic(bench.broker, topic, 1)
        sql(bench, f"CREATE NAMESPACE {LAKE}.ns_{topic}")
        sql(bench, f"CREATE TABLE {LAKE}.ns_{topic}.others ({columns}) USING iceberg {layout}")
        before = bench.table(f"ns_{topic}.others").metadata
        wanted = settings(bench, topic, {"table": "others"})
        (stream,) = foresee(bench.pipeline(wanted), None).streams
        assert said in str(stream.refusal)
        with pytest.raises(LakehouseError, match=said):
            bench.ingest(wanted)
        after = bench.table(f"ns_{topic}.others").metadata
        assert (after.schemas, after.partition_specs, after.current_snapshot_id) == (
            before.schemas, before.partition_specs, None,
        )  # fmt: skip

    def test_with_an_unsupported_column_is_refused_and_so_is_a_view(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        bench.lake.create_namespace(f"ns_{topic}")
        bench.lake.create_table(
            f"ns_{topic}.others", Schema(NestedField(1, "n", LongType()), NestedField(2, "id", UUIDType()))
        )
        wanted = settings(bench, topic, {"table": "others", "partition_by": []})
        (stream,) = foresee(bench.pipeline(wanted), None).streams
        assert str(stream.refusal) == (
            f"the column id of ns_{topic}.others is uuid, a type that this program does not write; name another table"
        )
        bench.spark.sql(f"CREATE VIEW {LAKE}.ns_{topic}.looks AS SELECT 1 AS n")
        looks = settings(bench, topic, {"table": "looks"})
        produce(bench.broker, topic, events(["any"], range(1)))
        (stream,) = foresee(bench.pipeline(looks), None).streams
        assert f"ns_{topic}.looks is a view, and a table is needed" in str(stream.refusal)
        with pytest.raises(LakehouseError, match="is a view"):
            bench.ingest(looks)


# -- those that can't be read -----------------------------------------------------------------------------


def unreadable(bench: Bench, table: str) -> Callable[[], object]:
    """Its metadata file is gone; gives what brings it back. What else there is: tests/unit/test_bad_catalogs.py."""
    file = Path(urlsplit(bench.table(table).metadata_location).path)
    return partial(file.rename(file.with_suffix(".away")).rename, file)


class TestUnreadableTable:
    def test_of_others_is_passed_over_until_a_record_needs_it(self, bench: Bench, topic: str) -> None:
        """A first start reports them in one line. They are not read again until a record needs them."""
        create_topic(bench.broker, topic, 1)
        sql(bench, f"CREATE NAMESPACE {LAKE}.ns_{topic}")
        theirs = [f"ns_{topic}.{name}" for name in ("gone", "lost")]
        for name in theirs:
            sql(bench, f"CREATE TABLE {LAKE}.{name} (n BIGINT)")
            unreadable(bench, name)
        produce(bench.broker, topic, events(["order"], range(3)))
        wanted = settings(bench, topic, {"table": "{type}"})
        for told in (1, 0):
            pipeline = bench.pipeline(wanted)
            with capture_logs() as said:
                pipeline.run()
            lines = [each for each in said if each["event"] == "tables_passed_over"]
            assert len(lines) == told
            assert all(each["tables"] == theirs for each in lines)
        assert sum(bench.places(f"ns_{topic}.order").values()) == 3
        produce(bench.broker, topic, events(["gone"], range(1)))
        with pytest.raises(NeedsOperator, match=r"gone: its file .* restore it"):
            bench.ingest(wanted)

    @pytest.mark.parametrize("table", ["{topic}", "others", "dead_letters"])
    def test_that_the_settings_name_stops_the_start(self, bench: Bench, topic: str, table: str) -> None:
        """Even before there is a record for it."""
        create_topic(bench.broker, topic, 1)
        name = f"ns_{topic}.{table.format(topic=topic)}"
        sql(bench, f"CREATE NAMESPACE {LAKE}.ns_{topic}")
        sql(bench, f"CREATE TABLE {LAKE}.{name} (n BIGINT)")
        unreadable(bench, name)
        with pytest.raises(NeedsOperator, match=f"{name}: its file .* is gone"):
            bench.ingest(settings(bench, topic, {"table": table if table != "dead_letters" else "{type}"}))

    def test_stops_the_start_if_the_batch_log_is_gone(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        wanted = settings(bench, topic, {"table": "{type}"})
        produce(bench.broker, topic, events(["order", "login"], range(3)))
        bench.ingest(wanted)
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
        mend = unreadable(bench, f"ns_{topic}.order")
        with pytest.raises(
            NeedsOperator, match=rf"ns_{topic}.order: its file .* is gone.*; the batch log no longer lists"
        ):
            bench.ingest(wanted)
        mend()
        bench.ingest(wanted)
        assert bench.places(f"ns_{topic}.order", f"ns_{topic}.login") == {(topic, 0, n): 1 for n in range(6)}

    def test_that_turns_out_to_be_ours_keeps_its_rows_once(self, bench: Bench, topic: str) -> None:
        """All else that knew this pipeline is lost, so the table was passed over. Its rows are not written again."""
        create_topic(bench.broker, topic, 1)
        wanted = settings(bench, topic, {"table": "{type}"})
        produce(bench.broker, topic, events(["order"], range(3)))
        bench.ingest(wanted)
        mend = unreadable(bench, f"ns_{topic}.order")
        for name in ("lakehouse_batches", "dead_letters"):
            bench.lake.purge_table(f"ns_{topic}.{name}")
        with pytest.raises(NeedsOperator, match=f"ns_{topic}.order"):
            bench.ingest(wanted)
        mend()
        produce(bench.broker, topic, events(["order", "login"], range(3, 5)))
        bench.ingest(wanted)
        assert bench.places(f"ns_{topic}.order", f"ns_{topic}.login") == {(topic, 0, n): 1 for n in range(7)}
