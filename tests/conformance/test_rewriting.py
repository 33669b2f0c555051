"""Rows that are changed where they are, while others write, take rows out, and change the table."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import CommitTableResponse

from catalog import (
    CatalogClient,
    Column,
    OutcomeUnknown,
    Partition,
    RequestRefused,
    TableSpec,
    TableState,
    Unreachable,
    add_columns,
    append_onto,
    create_table,
    load,
    rewrite_rows,
    rows_with,
)
from tests.conformance.tables import delete_by_position
from tests.services.catalogs import GIVEN, WITHOUT_GATE, Can, Kind

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")

COLUMNS = (Column("id", "long"), Column("site", "string"), Column("note", "string"))


def made(lake: CatalogClient, name: str, *partitions: str) -> None:
    create_table(lake, TableSpec(name, COLUMNS, tuple(map(Partition.parse, partitions))))
    for rows in (
        [{"id": 1, "site": "a", "note": "x"}, {"id": 2, "site": "b"}],
        [{"id": 3, "site": "a"}, {"id": 4, "site": "b"}],
    ):
        append_onto(lake, name, rows, lambda _: {"mark": "1"})


def shouted(rows: pa.Table) -> tuple[pa.Table, int] | None:
    before = rows["note"].to_pylist()
    notes = [note and note.upper() for note in before]
    if notes == before:
        return None
    at = rows.schema.get_field_index("note")
    others = sum(map(operator.ne, notes, before))
    return rows.set_column(at, rows.schema.field(at), pa.array(notes, rows.schema.field(at).type)), others


def noted(lake: CatalogClient, name: str) -> list[list[str]]:
    """By file."""
    return [rows["note"].to_pylist() for rows in rows_with(lake, name, ["note"], "note")]


def marked(state: TableState) -> Mapping[str, str]:
    return {"mark": next(each.summary["mark"] for each in state.ancestors() if "mark" in each.summary)}


NESTED = (
    *COLUMNS,
    Column("l", "list<struct<a: long>>"),
    Column("m", "map<string, struct<a: long>>"),
    Column("st", "struct<l: list<struct<a: long>>, m: map<string, struct<a: long>>>"),
    Column("ll", "list<list<struct<a: long>>>"),
    Column("ml", "map<string, list<struct<a: long>>>"),
)
NULLS_AND_OTHERS: list[dict[str, object]] = [
    {"id": 1, "note": "x"},
    {"id": 2, "l": [], "m": {}, "st": {}, "ll": [], "ml": {}},
    {
        "id": 3,
        "l": [None, {"a": None}],
        "m": {"k": None},
        "st": {"l": [], "m": {}},
        "ll": [None, []],
        "ml": {"k": None},
    },
    {
        "id": 4,
        "l": [{"a": 1}],
        "m": {"k": {"a": 2}},
        "st": {"l": [{"a": 3}], "m": {"k": {}}},
        "ll": [[{"a": 4}, None]],
        "ml": {"k": [{"a": 5}], "o": []},
    },
]


def in_files(lake: CatalogClient, name: str) -> list[dict[str, object]]:
    """As it is in there, whatever pyiceberg makes of it."""
    paths = [task.file.file_path for task in lake.table(name).scan().plan_files()]
    tables = [pq.read_table(re.sub("^file:(//)?", "", path), partitioning=None) for path in paths]
    return sorted((row for table in tables for row in table.to_pylist()), key=operator.itemgetter("id"))


def rows_of(lake: CatalogClient, name: str) -> dict[int, tuple[str, str | None]]:
    found = lake.table(name).scan().to_arrow().to_pylist()
    return {row["id"]: (row["site"], row["note"]) for row in found}


class TestRewrite:
    @pytest.mark.parametrize("partitions", [(), (Partition("site"),)])
    def test_keeps_null_values_null(
        self, kind: Kind, lake: CatalogClient, unmade: str, partitions: tuple[Partition, ...]
    ) -> None:
        """In the columns, too, that are not changed; none of what may lie in one another becomes an empty one."""
        kind.needs(Can.LOCAL_FILES)
        create_table(lake, TableSpec(unmade, NESTED, partitions))
        append_onto(lake, unmade, NULLS_AND_OTHERS, lambda _: {"mark": "1"})
        schema = lake.table(unmade).schema().as_arrow()
        written = pa.Table.from_pylist(NULLS_AND_OTHERS, schema=schema).to_pylist()
        assert in_files(lake, unmade) == written
        rewrite_rows(lake, unmade, "note", shouted, marked)
        assert in_files(lake, unmade) == [{**written[0], "note": "X"}, *written[1:]]

    def test_gives_older_files_the_columns_of_today(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        """By the ids of fields, at any depth: none is taken for another one of its name."""
        kind.needs(Can.LOCAL_FILES)
        create_table(lake, TableSpec(unmade, NESTED))
        row = {**NULLS_AND_OTHERS[3], "note": "x"}
        append_onto(lake, unmade, [row], lambda _: {"mark": "1"})
        with lake.table(unmade).update_schema() as update:
            for within in ("l.element", "ll.element.element", "ml.value.element", "m.value"):
                update.rename_column(f"{within}.a", "b c")
        add_columns(lake, unmade, [(within, Column("a", "long")) for within in ("l.element", "ll.element.element")])
        rewrite_rows(lake, unmade, "note", shouted, marked)
        assert in_files(lake, unmade) == [
            {
                **row,
                "site": None,
                "note": "X",
                "l": [{"b_x20c": 1, "a": None}],
                "m": [("k", {"b_x20c": 2})],
                "st": {"l": [{"a": 3}], "m": [("k", {"a": None})]},
                "ll": [[{"b_x20c": 4, "a": None}, None]],
                "ml": [("k", [{"b_x20c": 5}]), ("o", [])],
            }
        ]

    @pytest.mark.parametrize("partitions", [(), ("site",), ("bucket(4, id)", "truncate(1, site)")])
    def test_replaces_only_files_with_matching_rows(
        self, lake: CatalogClient, unmade: str, partitions: tuple[str, ...]
    ) -> None:
        if any("(" in each for each in partitions):
            pytest.importorskip("pyiceberg_core")
        made(lake, unmade, *partitions)
        before = {task.file.file_path: task.file.partition for task in lake.table(unmade).scan().plan_files()}
        state, changed = rewrite_rows(lake, unmade, "note", shouted, marked)
        assert changed == 1
        assert rows_of(lake, unmade) == {1: ("a", "X"), 2: ("b", None), 3: ("a", None), 4: ("b", None)}
        after = {task.file.file_path: task.file.partition for task in lake.table(unmade).scan().plan_files()}
        (old,), (new,) = before.keys() - after.keys(), after.keys() - before.keys()
        assert before[old] == after[new], "a file stays in its partition"
        assert marked(state) == {"mark": "1"}
        again, changed = rewrite_rows(lake, unmade, "note", shouted, marked)
        assert (again.main, changed) == (state.main, 0), "nothing is left to do"
        assert noted(lake, unmade) == [["X"]]

    def test_finds_rows_where_manifests_do_not_count_values(self, lake: CatalogClient, unmade: str) -> None:
        """As of all but the first hundred columns of a table."""
        uncounted = {"write.metadata.metrics.column.note": "none"}
        create_table(lake, TableSpec(unmade, COLUMNS, (), properties=uncounted))
        for rows in ([{"id": 1, "site": "a", "note": "x"}], [{"id": 2, "site": "b"}]):
            append_onto(lake, unmade, rows, lambda _: {"mark": "1"})
        counted = [
            (task.file.value_counts, task.file.null_value_counts) for task in lake.table(unmade).scan().plan_files()
        ]
        assert all(values and 3 not in values and nulls and 3 not in nulls for values, nulls in counted)
        assert [each for each in noted(lake, unmade) if each] == [["x"]]
        rewrite_rows(lake, unmade, "note", shouted, marked)
        assert rows_of(lake, unmade) == {1: ("a", "X"), 2: ("b", None)}

    def test_reads_file_by_file(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        """What is larger than the memory can be looked through: the next file is not touched before it is asked for."""
        kind.needs(Can.LOCAL_FILES)
        create_table(lake, TableSpec(unmade, COLUMNS))
        for note in "xy":
            append_onto(lake, unmade, [{"id": 1, "site": "a", "note": note}], lambda _: {"mark": "1"})
        found = rows_with(lake, unmade, ["note"], "note")
        assert len(next(found)) == 1
        for task in lake.table(unmade).scan().plan_files():
            Path(re.sub("^file:(//)?", "", task.file.file_path)).unlink()
        with pytest.raises(Unreachable):
            next(found)

    def test_keeps_what_others_do_meanwhile(
        self, lake: CatalogClient, unmade: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows that come, rows that go, which makes another file of ours, and a column."""
        made(lake, unmade)
        turns: Iterator[Callable[[CatalogClient], object]] = iter(
            [
                lambda other: append_onto(
                    other, unmade, [{"id": 5, "site": "c", "note": "y"}], lambda _: {"mark": "2"}
                ),
                lambda other: other.table(unmade).delete("id == 2"),
                lambda other: add_columns(other, unmade, [("", Column("more", "long"))]),
            ]
        )
        meant = []

        commit = lake.pyiceberg.commit_table

        def slow(*words: object) -> CommitTableResponse:
            if turn := next(turns, None):
                with kind.opened() as other:
                    turn(other)
            meant.append(words)
            return commit(*words)  # type: ignore[arg-type]

        monkeypatch.setattr(lake.pyiceberg, "commit_table", slow)
        _, changed = rewrite_rows(lake, unmade, "note", shouted, marked)
        assert changed == 2, "as many as this commit changes, whatever was written for those that were refused"
        assert rows_of(lake, unmade) == {1: ("a", "X"), 3: ("a", None), 4: ("b", None), 5: ("c", "Y")}
        assert len(meant) > 1
        assert next(iter(load(lake, unmade).ancestors())).summary["mark"] == "2"

    def test_counts_its_rows_though_others_expired_its_unanswered_commit(
        self, lake: CatalogClient, unmade: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made(lake, unmade)

        commit = lake.pyiceberg.commit_table

        def lost(*words: object) -> None:
            commit(*words)  # type: ignore[arg-type]
            with kind.opened() as other:
                head = append_onto(other, unmade, [{"id": 5, "site": "c"}], lambda _: {"mark": "2"})
                older = [each for each in head.snapshots if each != head.main]
                other.table(unmade).maintenance.expire_snapshots().by_ids(older).commit()
            raise OutcomeUnknown("nobody answers")

        monkeypatch.setattr(lake.pyiceberg, "commit_table", lost)
        _, changed = rewrite_rows(lake, unmade, "note", shouted, marked)
        assert changed == 1

    def test_does_not_bring_back_deleted_rows(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        kind.needs(Can.LOCAL_FILES)
        create_table(lake, TableSpec(unmade, COLUMNS))
        append_onto(lake, unmade, [{"id": each, "note": "x"} for each in (1, 2, 3)], lambda _: {"mark": "1"})
        delete_by_position(lake, unmade, 1)
        _, changed = rewrite_rows(lake, unmade, "note", shouted, marked)
        assert changed == 2
        assert [(row["id"], row["note"]) for row in in_files(lake, unmade)] == [(1, "X"), (3, "X")]

    def test_changes_nothing_if_its_caller_refuses(self, lake: CatalogClient, unmade: str) -> None:
        made(lake, unmade)

        def no(_: TableState) -> Mapping[str, str]:
            raise RequestRefused("not now")

        before = load(lake, unmade).main
        with pytest.raises(RequestRefused, match="not now"):
            rewrite_rows(lake, unmade, "note", shouted, no)
        assert load(lake, unmade).main == before
