"""How the rows of a table are divided into files: partitions as the settings say, and readers of those files."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from catalog import Partition, TableState, connect, load
from lakehouse_ingest.cli.verbs.files import listed
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import NeedsOperator, TableChanged
from lakehouse_ingest.pipeline.dry_run import foresee
from lakehouse_ingest.tables import PipelineTables
from tests.services.doors import connection_to
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live

AT = 1_705_330_800_000  # 2024-01-15T15:00:00Z


def fed(bench: Bench, topic: str, *records: Mapping[str, Any]) -> None:
    produce(bench.broker, topic, [(None, json.dumps(each).encode()) for each in records])


def state(bench: Bench, topic: str) -> TableState:
    return load(connect(connection_to(bench.uri)), f"ns_{topic}.{topic}")


def lake(bench: Bench) -> PipelineTables:
    return PipelineTables(connection_to(bench.uri), "reader")


class TestPartitions:
    def test_in_hive_directories_are_read_by_another_engine(self, bench: Bench, topic: str) -> None:
        """location=NYC/year=2024/month=01/day=15; a field year of the records' own has another column."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(
            topic, table={"hive_directories": True, "partition_by": ["location", "year", "month", "day"]}
        )
        fed(bench, topic, {"n": 1, "ts_ms": AT, "location": "NYC", "year": 1999})
        plan = foresee(bench.pipeline(settings), None)
        (foreseen,) = [each.after for each in plan.tables if each.after.name.endswith(topic)]
        bench.ingest(settings)
        fed(bench, topic, {"n": 2, "ts_ms": AT + 86_400_000, "location": "NYC", "new": "x"})
        bench.ingest(settings)
        after = state(bench, topic)
        assert (*map(str, after.partitions),) == ("location", "year", "month", "day")
        assert foreseen.columns == after.columns[:-1]  # but for what came later
        found = sorted((file for _, file in listed(lake(bench), [f"ns_{topic}.{topic}"])), key=lambda file: file.path)
        paths = [file.path.removeprefix("file:").lstrip("/") for file in found]
        assert "/data/location=NYC/year=2024/month=01/day=15/" in paths[0]
        assert [dict(file.partition) for file in found][1] == {
            "location": "NYC", "year": "2024", "month": "01", "day": "16",
        }  # fmt: skip
        files = ["/" + path for path in paths]
        rows = duckdb.sql(
            f"SELECT n, year, month, day FROM read_parquet({files}, hive_types_autocast=false) ORDER BY n"
        )
        assert rows.fetchall() == [(1, "2024", "01", "15"), (2, "2024", "01", "16")]

    def test_of_year_and_month_are_one_that_changes_only_where_allowed(self, bench: Bench, topic: str) -> None:
        """The layout of a table may change if the settings allow it; otherwise both layouts are shown."""
        create_topic(bench.broker, topic, 1)
        fed(bench, topic, {"n": 1, "ts_ms": AT, "location": "NYC"})
        bench.ingest(bench.settings(topic, table={"partition_by": ["year", "month"]}))
        assert state(bench, topic).partitions == (Partition("event_time", "month"),)
        fed(bench, topic, {"n": 2, "ts_ms": AT, "location": "NYC"})
        daily = {"partition_by": ["year", "month", "day", "location"]}
        with pytest.raises(
            TableChanged, match=r"\[month\(event_time\)\], the settings say \[day\(event_time\), location\]"
        ):
            bench.ingest(bench.settings(topic, table=daily))
        follows = bench.settings(topic, table={**daily, "partition_changes": "evolve"})
        plan = foresee(bench.pipeline(follows), None)
        said = [str(change) for each in plan.tables for change in each.changes]
        assert said == ["~ partitions [month(event_time)] -> [day(event_time), location]"]
        bench.ingest(follows)
        after = state(bench, topic)
        assert {*after.partitions} == {Partition("event_time", "day"), Partition("location")}
        assert sorted(row["n"] for row in bench.rows(f"ns_{topic}.{topic}")) == [1, 2]
        found = [dict(file.partition) for _, file in listed(lake(bench), [after.name])]
        assert {"event_time_month": "2024-01"} in found
        assert {"event_time_day": "2024-01-15", "location": "NYC"} in found
        assert not foresee(bench.pipeline(follows), None).changed

    def test_leave_a_field_of_the_same_name_its_own_column(self, bench: Bench, topic: str) -> None:
        """In the first batch and later, and also when the number of buckets changes."""
        create_topic(bench.broker, topic, 1)
        for n, more in enumerate(({"event_time_day": "x"}, {"n_bucket": "y"}, {"n_bucket_16": "z"})):
            fed(bench, topic, {"n": n, "ts_ms": AT, **more})
            layout = ["day(event_time)", f"bucket({16 if n else 4}, n)"]
            bench.ingest(bench.settings(topic, table={"partition_by": layout, "partition_changes": "evolve"}))
        after = state(bench, topic)
        assert {*map(str, after.partitions)} == {"day(event_time)", "bucket(16, n) as n_bucket_16"}
        fields = {column.name: column.doc for column in after.columns if (column.doc or "").startswith("field ")}
        assert [*fields.values()] == ["field event_time_day", "field n_bucket", "field n_bucket_16"]
        rows = sorted(bench.rows(f"ns_{topic}.{topic}"), key=lambda row: row["n"])
        assert [[row[name] for name in fields] for row in rows] == [
            ["x", None, None],
            [None, "y", None],
            [None, None, "z"],
        ]

    def test_of_one_row_each_are_written_with_a_warning(
        self, bench: Bench, topic: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """However many files there are: one writer makes all of them. That few are open: `test_file_writer.py`."""
        create_topic(bench.broker, topic, 1)
        fed(bench, topic, *({"n": n, "ts_ms": AT} for n in reversed(range(1_010))))
        settings = bench.settings(topic, table={"partition_by": ["n"]})
        plan = foresee(bench.pipeline(settings), None)
        assert 900 < plan.streams[0].seen.writing[f"ns_{topic}.{topic}"].spread < 1_200
        bench.ingest(settings)
        assert bench.published(f"ns_{topic}.{topic}")[0].summary["total-records"] == "1010"
        (warning,) = [line for line in capsys.readouterr().out.splitlines() if "many_files" in line]
        assert "files=1010" in warning
        assert "bucket(16, column)" in warning
        found = [file for _, file in listed(lake(bench), [f"ns_{topic}.{topic}"])]
        assert {int(str(dict(file.partition)["n"])) for file in found} == {*range(1_010)}
        writers, numbers = zip(*(Path(file.path).stem.rsplit("-", 1) for file in found), strict=True)
        assert len({*writers}) == 1
        assert sorted(map(int, numbers)) == [*range(1_010)]


class TestDataFiles:
    def test_have_the_codec_and_about_the_size_of_the_settings(self, bench: Bench, topic: str) -> None:
        """However many partitions the topic has."""
        create_topic(bench.broker, topic, 8)
        settings = bench.settings(topic, table={"codec": "gzip", "target_file_size": 2**20})
        name, noise = f"ns_{topic}.{topic}", Random(20261119)

        def landed(count: int, length: int) -> list[Path]:
            """The new files, of so many rows of so much noise."""
            before = {file.path for _, file in listed(lake(bench), [name])} if bench.lake.table_exists(name) else set()
            values = (json.dumps({"ts_ms": AT, "noise": noise.randbytes(length).hex()}).encode() for _ in range(count))
            produce(bench.broker, topic, [(None, value, None, None, n % 8) for n, value in enumerate(values)])
            bench.ingest(settings, max_batches=1)
            found = {file.path for _, file in listed(lake(bench), [name])} - before
            return [Path(path.removeprefix("file:")) for path in found]

        (small,) = landed(80, 4)
        footer = pq.ParquetFile(small).metadata
        assert (footer.num_rows, footer.row_group(0).column(0).compression) == (80, "GZIP")
        large = landed(20_000, 200)
        assert len(large) > 1
        assert max(file.stat().st_size for file in large) < 2 * 2**20

    def test_are_listed_for_the_head_or_for_an_earlier_snapshot(self, bench: Bench, topic: str) -> None:
        """Replaced files are not listed. A table with deleted rows is refused, unless delete files are asked for."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic, table={"properties": {"write.delete.mode": "merge-on-read"}})
        for n in range(3):
            fed(bench, topic, {"n": n, "ts_ms": AT}, {"n": n + 10, "ts_ms": AT})
            bench.ingest(settings)
        name = f"ns_{topic}.{topic}"
        before = bench.published(name)[0].snapshot_id
        earlier = {file.path for _, file in listed(lake(bench), [name])}
        assert len(earlier) == 3
        bench.spark.sql(
            f"CALL {LAKE}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all','true'))"
        )
        (now,) = [file for _, file in listed(lake(bench), [name])]
        assert (now.rows, now.content, now.path in earlier) == (6, "data", False)
        assert {file.path for _, file in listed(lake(bench), [name], before)} == earlier
        with pytest.raises(NeedsOperator, match="has no snapshot 7"):
            list(listed(lake(bench), [name], 7))
        bench.spark.sql(f"DELETE FROM {LAKE}.{name} WHERE n = 11")
        with pytest.raises(NeedsOperator, match="who reads files alone would see them: compact it first"):
            list(listed(lake(bench), [name]))
        both = [file.content for _, file in listed(lake(bench), [name], deletes=True)]
        assert sorted(both) == ["data", "position deletes"]
        assert {table for table, _ in listed(lake(bench), lake(bench).names_in(f"ns_{topic}"), deletes=True)} >= {name}
