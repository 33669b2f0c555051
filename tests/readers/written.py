"""What the readers are asked about: written once, by the real pipeline, into whatever store its catalog keeps.

Two starts of one pipeline. The second one finds new fields, and what others have done to the tables in between.
"""

import base64
import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from pyiceberg.manifest import FileFormat

from catalog import Column, Contract, Rule, TableSpec, apply, connect, load, plan
from lakehouse_ingest.cli.verbs.promote import promote
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.settings import S3Settings, Settings
from lakehouse_ingest.tables.clients import connection_of
from tests.services.doors import in_settings
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

NAMESPACE = TOPIC = "readers"  # each store has a topic of its own, with its name behind this one
MADE = 1_750_000_000_000  # when the records were made, in ms
BYTES = b"\x00\xff lake"
DAYS = [dt.datetime(2024, 2, 28 + n, 12, tzinfo=dt.UTC) for n in range(2)] + [dt.datetime(2024, 3, 1, tzinfo=dt.UTC)]
KEPT = DAYS[1]  # of the table `pruned`, the only day whose files are left

EPOCH = dt.date(1970, 1, 1).toordinal()

Row = Mapping[str, Any]

PLAIN = {
    "id": "long",
    "flag": "boolean",
    "small": "Int16",
    "word": "int",
    "ratio": "float",
    "exact": "double",
    "text": "string",
    "price": "decimal(9,2)",
    "fine": "decimal(38,18)",
    "huge": "UInt64",
    "day": "date",
    "at": "timestamptz",
    "blob": "binary",
}
NESTED = {
    "id": "long",
    "place": "struct<lat: double, inside: struct<name: string, floor: int>>",
    "readings": "list<struct<name: string, level: double>>",
    "grid": "list<list<long>>",
    "counts": "map<string, long>",
}
NARROW = {"id": "long", "number": "int", "share": "float", "price": "decimal(9,2)"}
WIDE = {"id": "long", "number": "long", "share": "double", "price": "decimal(18,2)"}
FROZEN = {"id": "long", "type": "string"}
PROMOTED = {"color": "string", "seen": "timestamptz", "spot": "struct<x: long, notes: list<string>>"}
GONE = 2  # the row that Spark deletes in between, of a file with two others
MARKED = {"write.delete.mode": "merge-on-read"}
# Tables that Spark has made before us, each with a row of its own: of version 3, which no new table of ours has.
OTHERS = {
    "third": "id BIGINT, at TIMESTAMP, place STRUCT<lat: DOUBLE, names: ARRAY<STRING>>",
    "deleted_by_vector": "id BIGINT, text STRING",
}
THEIRS = {"id": 0, "at": None, "place": {"lat": 0.5, "names": ["theirs"]}, "note": None}

FIRST: Mapping[str, tuple[Row, ...]] = {
    "plain": (
        {
            "id": 1,
            "flag": True,
            "small": -32_768,
            "word": 2**31 - 1,
            "ratio": 0.25,
            "exact": 0.1,
            "text": "grün 🌊 'quoted' \"twice\"\nand a line",
            "price": 1234567.89,
            "fine": 0.000000000000000001,
            "huge": 2**64 - 1,
            "day": "2024-02-29",
            "at": "2024-05-06T07:08:09.123456+05:30",
            "blob": base64.b64encode(BYTES).decode(),
        },
        {
            "id": -(2**63),
            "flag": False,
            "small": 32_767,
            "word": -(2**31),
            "ratio": -1.5,
            "exact": -1.7976931348623157e308,
            "text": "",
            "price": -0.01,
            "fine": -1.5,
            "huge": 0,
            "day": "1969-12-31",
            "at": "1969-12-31T23:59:59.999999Z",
            "blob": "",
        },
        {"id": 2**63 - 1},
    ),
    "far": (
        {"id": 1, "day": "0001-01-01", "at": "0001-01-01T00:00:00Z"},
        {"id": 2, "day": "1582-10-10", "at": "1582-10-10T00:00:00.000001Z"},
        {"id": 3, "day": "9999-12-31", "at": "9999-12-31T23:59:59.999999Z"},
    ),
    "nested": (
        {
            "id": 1,
            "place": {"lat": 53.5, "inside": {"name": "Hafen", "floor": 2}},
            "readings": [{"name": "a", "level": 1.5}, {"name": "b", "level": None}],
            "grid": [[1, 2], [], [3]],
            "counts": {"one": 1, "two": 2},
        },
        {
            "id": 2,
            "place": {"lat": 1.0, "inside": {"name": None, "floor": 0}},
            "readings": [],
            "grid": [],
            "counts": {},
        },
        {"id": 3, "place": None, "readings": None, "grid": None, "counts": None},
    ),
    # A reserved word as table and as column; what is no name; keys of an object, which stay as they are.
    "order": (
        {"id": 1, "select": 2, "Größe in cm": 3, "a-b": 4, "1st": 5, "it": {"first name": "x", "a-b": 6, "Öl": 7}},
    ),
    "later": ({"id": 1, "item": {"id": 10}, "tags": [{"key": "a"}]},),
    "widened": ({"id": 1, "number": 2**31 - 1, "share": 0.5, "price": 1234567.89},),
    "layouts": (
        {"id": 1, "ts_ms": MADE, "site": "north"},
        {"id": 2, "ts_ms": MADE + 90 * 86_400_000, "site": "nowhere"},
        {"id": 3, "ts_ms": MADE, "site": None},
    ),
    "renamed": ({"id": 1, "color": "red"}, {"id": 2}),
    "promoted": (
        {"id": 1, "color": "grün", "seen": "2024-05-06T07:08:09.123456Z", "spot": {"x": 2**40, "notes": ["a", None]}},
        {"id": 2, "color": "red", "seen": "1969-12-31T23:59:59.999999Z", "spot": {"x": 0, "notes": ["b"]}},
        {"id": 3, "spot": {"x": -1, "notes": []}},
    ),
    **{
        name: tuple({"id": n, "text": f"text {n}"} for n in (1, GONE, 3))
        for name in ("deleted_by_copy", "deleted_by_position", "deleted_by_vector")
    },
    "third": (
        {"id": 1, "at": "2024-05-06T07:08:09.123456Z", "place": {"lat": 53.5, "names": ["a", "b"]}},
        {"id": 2, "at": "1969-12-31T23:59:59.999999Z", "place": {"lat": -1.5, "names": []}},
    ),
    "pruned": tuple({"id": n, "ts_ms": int(DAYS[n % 3].timestamp() * 1000), "site": f"s{n % 2}"} for n in range(12)),
}
SECOND: Mapping[str, tuple[Row, ...]] = {
    "later": ({"id": 2, "item": {"id": 20, "size": 1.5}, "tags": [{"key": "b", "value": 2}], "note": "new"},),
    "widened": ({"id": 2, "number": 2**40, "share": 0.1, "price": 1234567890123.45},),
    "renamed": ({"id": 3, "color": "blue"},),
    "promoted": ({"id": 4, "color": "blue", "seen": "2024-02-29T00:00:00Z", "spot": {"x": 1, "notes": []}},),
    **{name: ({"id": 4, "text": "text 4"},) for name in FIRST if name.startswith("deleted")},
    "third": ({"id": 3, "at": "2024-02-29T00:00:00Z", "place": {"lat": 0.5, "names": ["c"]}, "note": "new"},),
}
# Key, value and headers of records that can't land, and why.
BROKEN: tuple[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], str], ...] = (
    (b"k\x00\xff", b'{"type": "plain", ', [("trace", b"\xfe"), ("none", None)], "broken_json"),
    (None, b'{"type": "plain", "id": "one"}', [], "wrong_type"),
    (b"", None, [], "empty_value"),
)


def settings(bench: Bench, topic: str, s3: S3Settings, *, again: bool = False) -> Settings:
    def columns(types: Mapping[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "type": kind} for name, kind in types.items()]

    tables: list[dict[str, Any]] = [
        {"table": "plain", "columns": columns(PLAIN)},
        {"table": "far", "columns": columns({"id": "long", "day": "date", "at": "timestamptz"})},
        {"table": "nested", "columns": columns(NESTED)},
        {"table": "widened", "columns": columns(WIDE if again else NARROW)},
        {"table": "layouts", "partition_by": ["month(event_time)", "bucket(4, id)", "truncate(2, site)", "site"]},
        {"table": "pruned", "partition_by": ["day(event_time)", "site"]},
        {"table": "order"},
        {"table": "later"},
        {"table": "renamed", "columns": columns(FROZEN), "contract": "freeze"},
        {"table": "promoted", "columns": columns({**FROZEN, **(PROMOTED if again else {})}), "contract": "freeze"},
        {"table": "deleted_by_copy"},
        {"table": "deleted_by_position", "properties": MARKED},
        *({"table": name, "partition_by": []} for name in OTHERS),
    ]
    stream = {"topics": [topic], "every": 0, "type_from": "field:type"}
    stream["tables"] = [{**each, "types": [each["table"]]} for each in tables]
    catalog = {**in_settings(bench.uri), "namespace": NAMESPACE}
    return bench.settings(topic, s3=s3, catalog=catalog, streams=[stream])


def write(bench: Bench, topic: str, s3: S3Settings) -> None:
    """All of it, through a topic of one partition; `s3` says where the files are that the bench's catalog keeps."""
    first = settings(bench, topic, s3)
    create_topic(bench.broker, topic, config={"retention.ms": "-1"})  # its records were made long ago
    made_by_spark(bench)
    broken = ((key, value, headers, MADE) for key, value, headers, _ in BROKEN)
    produce(bench.broker, topic, [*_records(FIRST), *broken])
    bench.ingest(first)
    _widen(first, bench.uri)
    for name, kind in PROMOTED.items():
        promote(first, "promoted", name, kind=kind, yes=True)
    changed_by_spark(bench)
    produce(bench.broker, topic, _records(SECOND))
    bench.ingest(settings(bench, topic, s3, again=True), accept_changes=True)


def _widen(first: Settings, uri: str) -> None:
    wider = TableSpec(f"{NAMESPACE}.widened", tuple(Column(name, kind) for name, kind in WIDE.items()))
    with closing(connect(connection_of(first.catalog, first.s3, uri))) as lake:
        apply(lake, wider.name, plan(load(lake, wider.name), wider, Contract(Rule.EVOLVE)))


def made_by_spark(bench: Bench) -> None:
    bench.spark.sql(f"CREATE NAMESPACE {LAKE}.{NAMESPACE}")
    for name, columns in OTHERS.items():
        table, properties = f"{LAKE}.{NAMESPACE}.{name}", {**MARKED, "format-version": "3"}
        told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        bench.spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ({told})")
    place = "named_struct('lat', 0.5D, 'names', array('theirs'))"
    bench.spark.sql(f"INSERT INTO {LAKE}.{NAMESPACE}.third VALUES (0, NULL, {place})")
    bench.spark.sql(f"INSERT INTO {LAKE}.{NAMESPACE}.deleted_by_vector VALUES (0, 'theirs')")


def changed_by_spark(bench: Bench) -> None:
    bench.spark.sql(f"ALTER TABLE {LAKE}.{NAMESPACE}.renamed RENAME COLUMN _rescued TO aside")
    for name, kinds in (
        ("deleted_by_copy", set()),
        ("deleted_by_position", {FileFormat.PARQUET}),
        ("deleted_by_vector", {FileFormat.PUFFIN}),
    ):
        bench.spark.sql(f"DELETE FROM {LAKE}.{NAMESPACE}.{name} WHERE id = {GONE}")
        tasks = [*bench.table(f"{NAMESPACE}.{name}").scan().plan_files()]
        found = {each.file_format for task in tasks for each in task.delete_files}
        assert found == kinds, f"not deleted in that way from {name}: {tasks}"


def files_of_other_days(bench: Bench) -> list[str]:
    """Of the table `pruned`."""
    files = [task.file for task in bench.table(f"{NAMESPACE}.pruned").scan().plan_files()]
    return [file.file_path for file in files if file.partition[0] != KEPT.date().toordinal() - EPOCH]


def _records(tables: Mapping[str, Iterable[Row]]) -> Iterator[tuple[None, bytes, None, int]]:
    for table, rows in tables.items():
        for row in rows:
            yield None, _json({"type": table, **row}).encode(), None, MADE


def _json(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)
