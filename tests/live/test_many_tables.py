"""One stream, many tables: routes, names, limits, records that can't be written, and several streams."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lakehouse_ingest.errors import BadRecord, SettingsRefused
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.settings.models import TableSettings
from lakehouse_ingest.tables import Add, PipelineTables, Plan, Position, TableSpec, TableState
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until
from tests.services.readers import duckdb_at

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("compiled")]

MADE = 1_750_000_000_000
OUTCOMES = ("landed", "dead", "filtered", "discarded", "trimmed")


def event(number: int, **fields: Any) -> bytes:
    return json.dumps({"n": number, "ts_ms": MADE + number, **fields}).encode()


def typed(bench: Bench, topic: str, kinds: Iterable[Any], **fields: Any) -> None:
    """An event for each of these types, in this order."""
    produce(bench.broker, topic, [(None, event(n, type=kind, **fields)) for n, kind in enumerate(kinds)])


def settings(bench: Bench, topic: str, *tables: dict[str, Any], **stream: Any) -> Settings:
    plain = bench.settings(topic, stream={"type_from": "field:type", **stream}).model_dump(exclude_unset=True)
    plain["streams"][0]["tables"] = [*tables] or [{"table": "{type}"}]
    return Settings.model_validate(plain)


def numbers(bench: Bench, name: str) -> list[int]:
    return sorted(row["n"] for row in bench.rows(name))


def tables_of(bench: Bench, topic: str) -> set[str]:
    ours = {"dead_letters", "lakehouse_batches"}
    return {name for _, name in bench.lake.list_tables(f"ns_{topic}")} - ours


def totals(bench: Bench, topic: str) -> Counter[str]:
    """What the batch record says became of all records; its law holds in every row."""
    found: Counter[str] = Counter()
    for row in bench.rows(f"ns_{topic}.lakehouse_batches"):
        for part in row["partitions"] or ():
            assert part["received"] == sum(part[outcome] for outcome in OUTCOMES), row
            assert part["end"] - part["start"] == part["received"] + part["absent"], row
            found.update({outcome: part[outcome] for outcome in (*OUTCOMES, "received") if part[outcome]})
    return found


def reasons(bench: Bench, topic: str) -> Counter[str]:
    return Counter(row["reason"] for row in bench.rows(f"ns_{topic}.dead_letters"))


NAMES = [
    "../x",
    "x; DROP TABLE y",
    "t" * 255,
    'quo"te',
    "new\nline",
    "\N{PILE OF POO}",
    "_file",
    "2024",
    "Stra\u00dfe",
    "`lake`.`x`",
    "order",
    "Order",
    "a.b",
    "a-b",
]


class TestRouting:
    def test_gives_each_type_a_table_and_counts_what_is_not_kept(self, bench: Bench, topic: str) -> None:
        """One batch: three types, a type that is not kept, two records without a usable type, and one that is not
        JSON."""
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", "payment", "debug", "order", "refund", None, "x" * 256])
        produce(bench.broker, topic, [(None, b'{"type": "order", ')])
        pipeline = bench.ingest(settings(bench, topic, keep_types="^(order|payment|refund)$"))
        assert pipeline.landed == 1
        assert tables_of(bench, topic) == {"order", "payment", "refund"}
        assert numbers(bench, f"ns_{topic}.order") == [0, 3]
        assert numbers(bench, f"ns_{topic}.payment") == [1]
        assert reasons(bench, topic) == {Reason.NO_TABLE: 2, Reason.BROKEN: 1}
        assert totals(bench, topic) == {"received": 8, "landed": 4, "dead": 3, "filtered": 1}

    def test_needs_every_named_table_where_none_may_be_created(self, bench: Bench, topic: str) -> None:
        """The namespace, the batch log, the dead-letter table and the topic's table; not those that only records
        name."""
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", "payment", "order"])
        plain = settings(bench, topic)
        switched_off = plain.model_copy(update={"catalog": plain.catalog.model_copy(update={"create": False})})
        for missing, name in (("namespace", ""), ("table", ".lakehouse_batches")):
            with pytest.raises(SettingsRefused, match=f"no {missing} ns_{topic}{name}, and .*; see `catalog.create`"):
                bench.ingest(switched_off)
            assert ((f"ns_{topic}",) in bench.lake.list_namespaces()) == (missing == "table")
            bench.lake.create_namespace_if_not_exists(f"ns_{topic}")
        assert not bench.lake.list_tables(f"ns_{topic}")
        bench.ingest(settings(bench, topic, keep_types="order"), accept_changes=True)
        typed(bench, topic, ["order", "payment"])
        bench.ingest(switched_off, accept_changes=True)
        assert tables_of(bench, topic) == {"order"}
        assert numbers(bench, f"ns_{topic}.order") == [0, 0, 2]
        (dead,) = bench.rows(f"ns_{topic}.dead_letters")
        assert (dead["reason"], dead["detail"].rpartition("; ")[2]) == (Reason.NO_TABLE, "see `catalog.create`")
        named = switched_off.streams[0].model_copy(update={"tables": (TableSettings(),)})
        with pytest.raises(SettingsRefused, match=f"there is no table ns_{topic}.{topic}, and it may not be made"):
            bench.ingest(switched_off.model_copy(update={"name": "other", "streams": (named,)}))

    @pytest.mark.parametrize("where", ["header:kind", "key"])
    def test_finds_the_type_in_a_header_or_in_the_key(self, bench: Bench, topic: str, where: str) -> None:
        create_topic(bench.broker, topic, 1)
        headers = [("kind", b"old"), ("kind", b"order")]
        produce(bench.broker, topic, [(b"order", event(1), headers), (None, event(2)), (b"\xff", event(3))])
        bench.ingest(settings(bench, topic, type_from=where))
        assert numbers(bench, f"ns_{topic}.order") == [1]
        assert reasons(bench, topic) == {Reason.NO_TABLE: 2}

    def test_tries_the_entries_in_order(self, bench: Bench, topic: str) -> None:
        """By topic and by type; each with settings of its own, and the last takes what is left."""
        other = f"{topic}-b"
        for name in (topic, other):
            create_topic(bench.broker, name, 1)
            typed(bench, name, ["order", "payment", "login"])
        entries: list[dict[str, Any]] = [
            {
                "table": "money",
                "types": ["order", "payment"],
                "topics": [topic],
                "columns": [{"name": "n", "type": "int"}],
            },
            {"table": "orders_{topic}", "types": ["order"], "partition_by": []},
            {"table": "rest"},
        ]
        bench.ingest(settings(bench, topic, *entries, topics=[topic, other]))
        assert tables_of(bench, topic) == {"money", f"orders_{topic}_b", "rest"}
        assert numbers(bench, f"ns_{topic}.money") == [0, 1]
        assert numbers(bench, f"ns_{topic}.orders_{topic}_b") == [0]
        assert numbers(bench, f"ns_{topic}.rest") == [1, 2, 2]
        assert totals(bench, topic) == {"received": 6, "landed": 6}

    def test_gives_any_type_a_table_name_that_leads_back_to_it(self, bench: Bench, topic: str) -> None:
        """If names collide, the first type by name keeps its name. The properties of a table name its type."""
        create_topic(bench.broker, topic, 1)
        ingest = settings(bench, topic)
        for _ in range(2):  # the second start finds each again
            typed(bench, topic, NAMES)
            bench.ingest(ingest)
        tables = tables_of(bench, topic)
        assert len({name.casefold() for name in tables}) == len(NAMES)
        assert all(name.isascii() and name.isidentifier() and len(name) <= 100 for name in tables)
        assert {"Order", "a_b", "_file_", "_2024", "x__DROP_TABLE_y"} <= tables
        for name in tables:
            table = bench.table(f"ns_{topic}.{name}")
            kind = NAMES.index(table.properties["lakehouse.type"])
            assert numbers(bench, f"ns_{topic}.{name}") == [kind, kind]
        assert reasons(bench, topic) == {}

    def test_refuses_table_names_that_collide_if_the_settings_say_so(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", "Order", "dead_letters", "order"])
        bench.ingest(settings(bench, topic, names="refuse"))
        assert tables_of(bench, topic) == {"Order"}  # the first by name, whatever comes first
        assert reasons(bench, topic) == {Reason.NAME_TAKEN: 3}
        assert totals(bench, topic) == {"received": 4, "landed": 1, "dead": 3}

    def test_creates_no_more_tables_than_the_limit_for_ten_thousand_types(self, bench: Bench, topic: str) -> None:
        """Existing tables still get their records, whatever else comes."""
        create_topic(bench.broker, topic, 1)
        ingest = settings(bench, topic, max_tables=3)
        typed(bench, topic, ["zebra"])
        bench.ingest(ingest)
        typed(bench, topic, [*(f"t{n:05}" for n in range(10_000)), "zebra"])
        bench.ingest(ingest)
        assert tables_of(bench, topic) == {"zebra", "t00000", "t00001"}
        assert numbers(bench, f"ns_{topic}.zebra") == [0, 10_000]
        assert reasons(bench, topic) == {Reason.TOO_MANY_TABLES: 9_998}
        assert totals(bench, topic) == {"received": 10_002, "landed": 4, "dead": 9_998}


class TestTypeWithBraces:
    def test_is_a_type_like_any_other(self, bench: Bench, topic: str) -> None:
        """What looks like a template, a format string or SQL is plain text; an object or a list of JSON is no type."""
        kinds = ["{0}", "{type}", "[x", "`%s`; --"]
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, [*kinds, {"a": 1}, [0]])
        bench.ingest(settings(bench, topic, {"table": "e_{type}"}))
        found = {bench.table(f"ns_{topic}.{name}").properties["lakehouse.type"] for name in tables_of(bench, topic)}
        assert found == {*kinds}
        assert reasons(bench, topic) == {Reason.NO_TABLE: 2}
        assert totals(bench, topic) == {"received": 6, "landed": 4, "dead": 2}

    def test_may_stand_in_the_key(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        keys = [b"{0}", b'{"id": 1}', b'{"a":1,"a":2}']
        produce(bench.broker, topic, [(key, event(n)) for n, key in enumerate(keys)])
        bench.ingest(settings(bench, topic, type_from="key"))
        assert (tables_of(bench, topic), reasons(bench, topic)) == ({"_0_"}, {Reason.NO_TABLE: 2})


class TestNewField:
    def test_becomes_a_column_that_a_second_engine_reads(self, bench: Bench, topic: str) -> None:
        """In the batch that brings it, nested as well; rows from before have nothing there."""
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", "login"], item={"id": 1})
        ingest = settings(bench, topic)
        bench.ingest(ingest)
        typed(bench, topic, ["order"], item={"id": 2, "size": 1.5}, note="new", day="2024-05-06")
        bench.ingest(ingest)
        with duckdb_at(bench.uri) as duck:
            found = duck.sql(
                f"SELECT n, item.id, item.size, note, day::VARCHAR FROM lake.ns_{topic}.order ORDER BY ALL"
            )
            assert found.fetchall() == [(0, 1, None, None, None), (0, 2, 1.5, "new", "2024-05-06")]
            (columns,) = zip(
                *duck.sql(f"SELECT column_name FROM (DESCRIBE lake.ns_{topic}.login)").fetchall(), strict=True
            )
            assert "note" not in columns

    @pytest.mark.parametrize("contract", ["evolve", None])
    def test_keeps_its_values_if_another_writer_creates_the_column_first(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch, contract: str | None
    ) -> None:
        """When we planned, the table, and later the column, was not there. The other writer's has fewer fields."""
        create_topic(bench.broker, topic, 1)
        create, change, came_first = PipelineTables.create, PipelineTables.change, list[str]()

        def another_creates(lake: PipelineTables, spec: TableSpec) -> TableState:
            if spec.name.endswith(".all"):
                came_first.append("the table")
                create(lake, replace(spec, columns=tuple(each for each in spec.columns if each.name != "item")))
            return create(lake, spec)

        def another_changes(lake: PipelineTables, place: Position, changes: Sequence[Add]) -> tuple[TableState, Plan]:
            if [each.column.name for each in changes] == ["late"]:
                came_first.append("the column")
                (late,) = changes
                change(lake, place.table, [replace(late, column=replace(late.column, type="struct<a: long>"))])
            return change(lake, place, changes)

        monkeypatch.setattr(PipelineTables, "create", another_creates)
        monkeypatch.setattr(PipelineTables, "change", another_changes)
        table = {"table": "all", **({"contract": contract} if contract else {})}
        bench_settings = settings(bench, topic, table, max_records=2)
        produce(bench.broker, topic, [(None, event(0, item={"id": 7})), (None, event(1, item={"id": 8}))])
        produce(bench.broker, topic, [(None, event(2, late={"a": 1, "b": 2})), (None, event(3, late={"b": 3}))])
        bench.ingest(bench_settings)
        assert came_first == ["the table", "the column"]
        found = {row["n"]: (row["item"], row["late"]) for row in bench.rows(f"ns_{topic}.all")}
        assert found == {
            0: ({"id": 7}, None),
            1: ({"id": 8}, None),
            2: (None, {"a": 1, "b": 2}),
            3: (None, {"a": None, "b": 3}),
        }
        assert not bench.rows(f"ns_{topic}.dead_letters")

    def test_beyond_the_limit_of_a_batch_dead_letters_its_record(self, bench: Bench, topic: str) -> None:
        """What goes beyond the limit stays a dead letter of this batch. The next batch may bring as many again."""
        create_topic(bench.broker, topic, 1)
        for number, fields in enumerate([[], [*"abcdefg"], [*"abcdefg"]]):
            produce(bench.broker, topic, [(None, event(number, **dict.fromkeys(fields, number)))])
            bench.ingest(settings(bench, topic, {"table": "all", "max_new": 3}))
        columns = {each.name for each in bench.table(f"ns_{topic}.all").schema().fields}
        assert len(columns & {*"abcdefg"}) == 6
        assert reasons(bench, topic) == {Reason.NO_COLUMN: 2}
        assert numbers(bench, f"ns_{topic}.all") == [0]


class TestBadRecord:
    def test_stops_the_stream_before_its_batch_if_on_error_is_raise(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", "order", None, None])
        said = rf"topic {topic} partition 0 offset 2 cannot become a row: no_table .*`on_error`"
        with pytest.raises(BadRecord, match=said):
            bench.ingest(settings(bench, topic, on_error="raise"))
        assert bench.published(f"ns_{topic}.order") == []
        bench.ingest(settings(bench, topic))
        assert numbers(bench, f"ns_{topic}.order") == [0, 1]
        assert totals(bench, topic) == {"received": 4, "landed": 2, "dead": 2}

    def test_is_discarded_and_counted_if_on_error_is_ignore(
        self, bench: Bench, topic: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        create_topic(bench.broker, topic, 1)
        typed(bench, topic, ["order", None])
        produce(bench.broker, topic, [(None, b"{"), (None, event(7, type="order", ts_ms="no time"))])
        bench.ingest(settings(bench, topic, on_error="ignore"))
        assert bench.published(f"ns_{topic}.dead_letters") == []
        assert totals(bench, topic) == {"received": 4, "landed": 1, "discarded": 3}
        (row,) = [row for row in bench.rows(f"ns_{topic}.lakehouse_batches") if row["kind"] == "batch"]
        assert dict(row["reasons"]) == {Reason.NO_TABLE: 1, Reason.BROKEN: 1, Reason.EVENT_TIME: 1}
        (alarm,) = [line for line in capsys.readouterr().out.splitlines() if "discarded" in line]
        assert "error" in alarm


def two_streams(bench: Bench, topic: str, **second: Any) -> Settings:
    plain = bench.settings(topic).model_dump(exclude_unset=True)
    plain["retry"] = {"first": 0.2, "limit": 300}
    plain["streams"] = [
        {"topics": [topic], "every": 0, "tables": [{"table": "first"}]},
        {"name": "other", "topics": [f"{topic}_2"], "every": 0, "tables": [{"table": "second"}], **second},
    ]
    return Settings.model_validate(plain)


class TestFailure:
    def test_of_one_table_stops_no_other(self, bench: Bench, topic: str, warehouse: Path) -> None:
        """Four of five are written. Once it is possible, the batch is repeated for the fifth, and nothing is
        doubled."""
        create_topic(bench.broker, topic, 1)
        kinds = ["a", "b", "c", "d", "e"]
        typed(bench, topic, kinds)
        ingest = settings(bench, topic, max_records=10)
        bench.ingest(ingest)
        data = warehouse / f"ns_{topic}" / "c" / "data"
        aside = data.rename(data.with_name("aside"))
        data.write_text("in the way")
        typed(bench, topic, [*kinds, *kinds, None])
        pipeline = bench.pipeline(ingest)
        thread = Thread(target=pipeline.run)
        thread.start()
        try:
            others = [f"ns_{topic}.{kind}" for kind in "abde"]
            assert until(lambda: all(len(bench.rows(name)) == 3 for name in others), 60, 0.5)
            assert bench.rows(f"ns_{topic}.dead_letters") == []
        finally:
            data.unlink()
            aside.rename(data)
            thread.join(60)
        assert not thread.is_alive()
        everywhere = bench.places(*(f"ns_{topic}.{kind}" for kind in kinds), f"ns_{topic}.dead_letters")
        assert everywhere == {(topic, 0, offset): 1 for offset in range(16)}
        assert totals(bench, topic)["received"] == 16

    def test_of_one_stream_ends_no_other(self, bench: Bench, topic: str) -> None:
        """Two in one process, each with topics and tables of its own."""
        for name in (topic, f"{topic}_2"):
            create_topic(bench.broker, name, 1)
            produce(bench.broker, name, [(None, event(n)) for n in range(5)])
        produce(bench.broker, f"{topic}_2", [(None, b"{")])
        with pytest.raises(BadRecord):
            bench.ingest(two_streams(bench, topic, on_error="raise"))
        assert numbers(bench, f"ns_{topic}.first") == [0, 1, 2, 3, 4]
        produce(bench.broker, topic, [(None, event(5))])
        bench.ingest(two_streams(bench, topic))
        assert numbers(bench, f"ns_{topic}.first") == [0, 1, 2, 3, 4, 5]
        assert numbers(bench, f"ns_{topic}.second") == [0, 1, 2, 3, 4]
        assert reasons(bench, topic) == {Reason.BROKEN: 1}
        rows = bench.rows(f"ns_{topic}.lakehouse_batches")
        assert {row["pipeline"] for row in rows} == {topic, f"{topic}-other"}

    def test_of_one_stream_is_retried_alone(self, bench: Bench, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Its topic is not there yet; meanwhile the other lands."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, [(None, event(n)) for n in range(5)])
        first, second = (f"ns_{topic}", "first"), (f"ns_{topic}", "second")
        with running(bench.pipeline(two_streams(bench, topic), drain=False)):
            assert until(lambda: bench.lake.table_exists(first) and len(bench.rows(".".join(first))) == 5, 60, 0.5)
            create_topic(bench.broker, f"{topic}_2", 1)
            produce(bench.broker, f"{topic}_2", [(None, event(7))])
            assert until(lambda: bench.lake.table_exists(second) and bench.rows(".".join(second)) != [], 150, 0.5)
        assert numbers(bench, f"ns_{topic}.second") == [7]
        lines = capsys.readouterr().out.splitlines()
        again = [line for line in lines if "retrying" in line]
        assert again
        assert all("stream=other" in line for line in again)
        assert len([line for line in lines if "started" in line and f"stream={topic}" in line]) == 1
