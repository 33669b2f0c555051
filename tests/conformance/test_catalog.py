"""What `catalog` promises, on every catalog of `tests/services/catalogs.py`."""

import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

import catalog
from catalog import (
    CatalogClient,
    Column,
    Connection,
    Partition,
    RequestRefused,
    Sort,
    TableMissing,
    TableSpec,
    Unreachable,
    add_columns,
    append_onto,
    connect,
    create_table,
    ensure_namespace,
    load,
    open_branch,
    plan,
    rewrite_rows,
)
from tests.conformance.commits import COLUMNS, anyhow, ids_in
from tests.services.catalogs import NAMESPACE, Can, Kind
from tests.services.faulty import Faulty

SENT_TOKEN = "s3cr3t-token-value"


class TestTable:
    def test_is_one_for_eight_that_make_it_at_once(self, kind: Kind, lake: CatalogClient) -> None:
        kind.needs(Can.NESTED)
        namespace = f"{NAMESPACE}.many{uuid.uuid4().hex[:8]}.deep"
        spec = TableSpec(f"{namespace}.t", COLUMNS)

        def make(_: int) -> str:
            ensure_namespace(lake, namespace)
            return create_table(lake, spec).uuid

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(make, range(8)))) == 1

    def test_comes_back_as_it_was_declared(self, lake: CatalogClient) -> None:
        spec = TableSpec(
            f"{NAMESPACE}.t{uuid.uuid4().hex[:12]}",
            (
                Column("id", "long", required=True, doc="who"),
                Column("event_time", "timestamptz"),
                Column("name", "string"),
                Column("price", "decimal(10,2)"),
                Column("place", 'struct<lat: double, "odd name": list<map<string, long>>>'),
            ),
            tuple(map(Partition.parse, ("day(event_time)", "bucket(16, id)", "truncate(4, name)", "name as n"))),
            (Sort("event_time", descending=True), Sort("bucket(4, id)")),
            {"write.parquet.compression-codec": "zstd"},
        )
        made = create_table(lake, spec)
        assert (made.columns, made.partitions, made.sort) == (spec.columns, spec.partitions, spec.sort)
        assert spec.properties.items() <= made.properties.items()
        assert str(plan(made, spec)) == "nothing to change"
        assert made.format_version == 2
        assert made.main is None
        assert made.history_complete()
        fields = [field.name for field in lake.pyiceberg.load_table(spec.name).spec().fields]
        assert fields == ["event_time_day", "id_bucket", "name_trunc", "n"]

    def test_that_is_missing_is_named(self, lake: CatalogClient) -> None:
        with pytest.raises(TableMissing, match=rf"{NAMESPACE}\.nothing"):
            load(lake, f"{NAMESPACE}.nothing")
        with pytest.raises(RequestRefused, match="namespace"):
            load(lake, "plain")


class TestPackage:
    def test_runs_as_it_says_of_itself(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        kind.needs(Can.NESTED, Can.BRANCH_FIRST)
        _, _, program = str(catalog.__doc__).partition("\n\n")
        exec(program.replace('"iot', f'"{unmade}'), {**vars(catalog), "connect": lambda _: lake, "pyarrow": pa})
        assert ids_in(lake, f"{unmade}.sensors") == [1]


class TestRows:
    def test_are_added_to_a_table_of_version_3_and_not_rewritten(
        self, kind: Kind, lake: CatalogClient, unmade: str
    ) -> None:
        kind.needs(Can.NEW_FORMATS)
        create_table(lake, TableSpec(unmade, (Column("id", "long"),), properties={"format-version": "3"}))
        open_branch(lake, unmade, "ours")
        for number in (1, 2):
            append_onto(lake, unmade, [{"id": number}], lambda _: {})
        assert ids_in(lake, unmade) == [1, 2]
        with pytest.raises(RequestRefused, match="whose files only engines can rewrite"):
            rewrite_rows(lake, unmade, "id", lambda _: None, lambda _: {})

    def test_with_an_unknown_column_are_refused(self, lake: CatalogClient, filled: str) -> None:
        with pytest.raises(RequestRefused, match="oops"):
            append_onto(lake, filled, [{"id": 1, "oops": 2}], anyhow)
        with pytest.raises(RequestRefused):
            append_onto(lake, filled, [{"id": "no number"}], anyhow)


class TestColumns:
    def test_are_added_at_every_depth_in_one_commit(self, lake: CatalogClient) -> None:
        name = f"{NAMESPACE}.t{uuid.uuid4().hex[:12]}"
        columns = (
            Column("place", "struct<lat: double>"),
            Column("items", "list<struct<sku: string>>"),
            Column("tags", "map<string, struct<level: int>>"),
        )
        before = create_table(lake, TableSpec(name, columns))
        added = [
            ("", Column("a.b", "decimal(10, 2)", doc="dotted")),
            ("place", Column("lon", "double")),
            ("items.element", Column("parts", "list<struct<n: long>>")),
            ("tags.value", Column("note", "string")),
        ]
        after = add_columns(lake, name, added)
        assert [column.type for column in after.columns] == [
            "struct<lat: double, lon: double>",
            "list<struct<sku: string, parts: list<struct<n: long>>>>",
            "map<string, struct<level: int, note: string>>",
            "decimal(10,2)",
        ]
        assert after.schema_id == before.schema_id + 1
        assert add_columns(lake, name, added).schema_id == after.schema_id
        again = [("place", Column("lon", "float", doc="another's")), ("", Column("items", "list<struct<sku: string>>"))]
        assert add_columns(lake, name, again).schema_id == after.schema_id
        with pytest.raises(RequestRefused, match="lon is there as double"):
            add_columns(lake, name, [("place", Column("lon", "string"))])
        with pytest.raises(RequestRefused, match="level is there as int"):
            add_columns(lake, name, [("tags.value", Column("level", "long"))])
        with pytest.raises(RequestRefused):
            add_columns(lake, name, [("nowhere", Column("x", "long"))])
        with pytest.raises(RequestRefused):
            add_columns(lake, name, [("", Column("y", "long", required=True))])

    def test_are_added_for_all_who_add_them_at_once(self, lake: CatalogClient, partitioned: str) -> None:
        def add(number: int) -> None:
            own, shared = Column(f"c{number}", "long"), Column("shared", "string")
            add_columns(lake, partitioned, [("", own), ("", shared)])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add, range(4)))
        names = [column.name for column in load(lake, partitioned).columns]
        assert sorted(names) == ["c0", "c1", "c2", "c3", "id", "shared", "site"]


class TestConnection:
    def test_to_a_closed_port_is_unreachable_within_seconds(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*refused"):
            connect(Connection(f"http://127.0.0.1:{port}", token=SENT_TOKEN))
        assert time.monotonic() - started < 5

    def test_shows_no_secret(self, rest_uri: str) -> None:
        with Faulty(rest_uri) as front:  # which knows the token in place of this one
            connection = Connection(
                front.uri.replace("://", f"://user:{SENT_TOKEN}@"),
                token=SENT_TOKEN,
                properties={"s3.secret-access-key": SENT_TOKEN},
            )
            _shows_no_secret(connection)


def _shows_no_secret(connection: Connection) -> None:
    lake = connect(connection)
    shown = [repr(connection), str(connection), repr(lake)]
    with suppress(TableMissing):
        load(lake, f"{NAMESPACE}.{SENT_TOKEN}")
    with pytest.raises(TableMissing) as missing:
        load(lake, f"{NAMESPACE}.{SENT_TOKEN}")
    assert missing.value.__suppress_context__
    shown.append(str(missing.value).removeprefix(f"loading table {NAMESPACE}.{SENT_TOKEN}: "))
    assert not [text for text in shown if SENT_TOKEN in text]
