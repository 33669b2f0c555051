"""What `catalog` promises, on every catalog of `tests/services/catalogs.py`."""

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.table import Transaction

import catalog
from catalog import (
    BranchesRefused,
    BranchGone,
    CatalogClient,
    Column,
    Conflict,
    Connection,
    FilesUnfit,
    OutcomeUnknown,
    Partition,
    RequestRefused,
    Sort,
    TableMissing,
    TableSpec,
    TableState,
    UnpublishedSnapshot,
    Unreachable,
    add_columns,
    append_onto,
    append_published,
    append_rows,
    connect,
    create_table,
    drop_branches,
    ensure_namespace,
    fence,
    load,
    open_branch,
    plan,
    publish,
    publish_again,
    recommit_onto,
    rewrite_rows,
    set_properties,
)
from catalog.appends import written_files
from catalog.commits import append_onto_main, commit
from tests.services.catalogs import NAMESPACE, Can, Kind
from tests.services.faulty import Faulty

COLUMNS = (Column("id", "long"), Column("site", "string"))
SENT_TOKEN = "s3cr3t-token-value"

Send = Callable[[], requests.Response]


@pytest.fixture
def name(lake: CatalogClient, unmade: str) -> str:
    create_table(lake, TableSpec(unmade, COLUMNS, (Partition.parse("site"),)))
    return unmade


@pytest.fixture
def others(kind: Kind) -> Iterator[CatalogClient]:
    """Somebody else's client."""
    with kind.opened() as lake:
        yield lake


@pytest.fixture
def filled(kind: Kind, lake: CatalogClient, name: str) -> str:
    """A table with one published row and the branch `ours` at main's head."""
    begin(kind, lake, name)
    open_branch(lake, name, "ours")
    land(lake, name, 1)
    return name


def begin(kind: Kind, lake: CatalogClient, name: str) -> None:
    """Where a branch needs some snapshot to stand on, an empty one."""
    if Can.BRANCH_FIRST in kind.cannot:
        foreign_commit(lake, name)


def land(lake: CatalogClient, name: str, *ids: int, branch: str = "ours") -> TableState:
    staged = stage(lake, name, *ids, branch=branch)
    return publish(lake, name, branch, staged.snapshot, staged.parent)


def stage(lake: CatalogClient, name: str, *ids: int, branch: str = "ours") -> UnpublishedSnapshot:
    rows = [{"id": number, "site": "north" if number % 2 else "south"} for number in ids]
    return append_rows(lake, name, branch, rows, {"test.ids": ",".join(map(str, ids))})


def foreign_commit(lake: CatalogClient, name: str, *ids: int) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "site": pa.array(["foreign"] * len(ids), pa.string())}))


def ids_in(lake: CatalogClient, name: str) -> list[int]:
    return sorted(lake.pyiceberg.load_table(name).scan().to_arrow()["id"].to_pylist())


def files_of(lake: CatalogClient, name: str, snapshot: int) -> set[str]:
    table = lake.pyiceberg.load_table(name)
    found = table.metadata.snapshot_by_id(snapshot)
    assert found
    return {
        entry.data_file.file_path
        for manifest in found.manifests(table.io)
        if manifest.added_snapshot_id == snapshot
        for entry in manifest.fetch_manifest_entry(table.io)
    }


@contextmanager
def on_commit(lake: CatalogClient, act: Callable[[Send], requests.Response]) -> Iterator[None]:
    """Stand between us and the catalog for commits; `act` decides when and whether they are sent."""
    session: Any = getattr(lake.pyiceberg, "_session", None)
    if session is None:
        pytest.skip("nobody can stand between us and a catalog that speaks no REST")
    real = session.request

    def request(method: str, url: str, **kwargs: Any) -> requests.Response:
        if method == "POST" and "/tables/" in url:
            return act(lambda: real(method, url, **kwargs))
        return real(method, url, **kwargs)  # type: ignore[no-any-return]

    session.request = request
    try:
        yield
    finally:
        session.request = real


def answer_lost(send: Send) -> requests.Response:
    send()
    raise requests.ConnectionError("Connection aborted.")


def request_lost(_: Send) -> requests.Response:
    raise requests.ConnectionError("Connection aborted.")


def test_eight_that_make_the_same_table_at_once_all_get_the_one(kind: Kind, lake: CatalogClient) -> None:
    kind.needs(Can.NESTED)
    namespace = f"{NAMESPACE}.many{uuid.uuid4().hex[:8]}.deep"
    spec = TableSpec(f"{namespace}.t", COLUMNS)

    def make(_: int) -> str:
        ensure_namespace(lake, namespace)
        return create_table(lake, spec).uuid

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make, range(8)))) == 1


def test_a_table_comes_back_as_it_was_declared(lake: CatalogClient) -> None:
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


def test_what_the_package_says_of_itself_runs(kind: Kind, lake: CatalogClient, unmade: str) -> None:
    kind.needs(Can.NESTED, Can.BRANCH_FIRST)
    _, _, program = str(catalog.__doc__).partition("\n\n")
    exec(program.replace('"iot', f'"{unmade}'), {**vars(catalog), "connect": lambda _: lake, "pyarrow": pa})
    assert ids_in(lake, f"{unmade}.sensors") == [1]


def test_what_is_missing_is_named(lake: CatalogClient) -> None:
    with pytest.raises(TableMissing, match=rf"{NAMESPACE}\.nothing"):
        load(lake, f"{NAMESPACE}.nothing")
    with pytest.raises(RequestRefused, match="namespace"):
        load(lake, "plain")


def test_a_branch_starts_at_mains_head_and_drops_the_stale_ones_with_it(lake: CatalogClient, filled: str) -> None:
    state = open_branch(lake, filled, "next", drop=["ours", "never_there"])
    assert state.refs == {"main": state.main, "next": state.main}


def test_on_an_empty_table_main_stays_unset_until_the_first_publication(
    kind: Kind, lake: CatalogClient, name: str
) -> None:
    kind.needs(Can.BRANCH_FIRST)
    opened = open_branch(lake, name, "ours")
    assert opened.main is None
    assert "ours" in opened.refs
    staged = stage(lake, name, 1, 2)
    assert staged.parent is None
    assert load(lake, name).main is None
    published = publish(lake, name, "ours", staged.snapshot, None)
    assert published.main == staged.snapshot
    assert ids_in(lake, name) == [1, 2]


def test_rows_are_added_to_a_table_of_version_3_and_not_rewritten(kind: Kind, lake: CatalogClient, unmade: str) -> None:
    kind.needs(Can.NEW_FORMATS)
    create_table(lake, TableSpec(unmade, (Column("id", "long"),), properties={"format-version": "3"}))
    open_branch(lake, unmade, "ours")
    for number in (1, 2):
        append_onto(lake, unmade, [{"id": number}], lambda _: {})
    assert ids_in(lake, unmade) == [1, 2]
    with pytest.raises(RequestRefused, match="whose files only engines can rewrite"):
        rewrite_rows(lake, unmade, "id", lambda _: None, lambda _: {})


def test_what_is_appended_by_others_to_the_empty_snapshot_of_the_branch_is_published(
    kind: Kind, lake: CatalogClient, name: str
) -> None:
    """As Spark does it: main is unset, the first landing stands upon the branch's empty snapshot."""
    kind.needs(Can.BRANCH_FIRST)
    open_branch(lake, name, "ours")
    table = lake.pyiceberg.load_table(name)
    table.append(pa.table({"id": pa.array([5], pa.int64()), "site": ["north"]}), branch="ours")
    staged = load(lake, name).refs["ours"]
    assert staged
    published = publish(lake, name, "ours", staged, None)
    assert next(published.ancestors()).id == staged
    assert len(list(published.ancestors())) == 2
    assert ids_in(lake, name) == [5]


def test_a_branch_of_an_empty_table_is_opened_while_another_writer_begins(
    kind: Kind, lake: CatalogClient, others: CatalogClient, name: str
) -> None:
    """Main is unset for both, so that it has not moved does not tell; the numbers of their first snapshots do."""
    kind.needs(Can.BRANCH_FIRST)
    begun: list[UnpublishedSnapshot] = []

    def begin_meanwhile(send: Send) -> requests.Response:
        if not begun:
            open_branch(others, name, "theirs")
            begun.append(stage(others, name, 1, branch="theirs"))
        return send()

    with on_commit(lake, begin_meanwhile):
        assert open_branch(lake, name, "ours").refs.keys() == {"theirs", "ours"}
    publish(others, name, "theirs", begun[0].snapshot, begun[0].parent)
    foreign_commit(others, name, 2)
    assert ids_in(lake, name) == [1, 2]


@pytest.mark.parametrize("rows", [(), (1,)])
def test_of_those_who_open_the_same_branch_at_once_one_gets_it(
    kind: Kind, lake: CatalogClient, name: str, rows: tuple[int, ...]
) -> None:
    if rows:
        foreign_commit(lake, name, *rows)
    else:
        kind.needs(Can.BRANCH_FIRST)

    def attempt(_: int) -> bool:
        try:
            open_branch(lake, name, "epoch_1")
        except (Conflict, OutcomeUnknown):
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(4))) == 1


def test_a_publication_over_a_foreign_commit_is_refused_and_nothing_of_it_is_seen(
    lake: CatalogClient, filled: str
) -> None:
    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    with pytest.raises(Conflict):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert ids_in(lake, filled) == [1, 100]


def test_a_parent_that_the_snapshot_was_not_built_upon_never_moves_main(lake: CatalogClient, filled: str) -> None:
    """A caller that passes main's newest head would otherwise undo the commit of another."""
    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    with pytest.raises(Conflict, match="committed again"):
        publish(lake, filled, "ours", staged.snapshot, load(lake, filled).main)
    assert ids_in(lake, filled) == [1, 100]


def test_a_refused_publication_is_sent_once(lake: CatalogClient, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg repeats its transactions' commits upon the newest head; ours must not be among them."""
    sent: list[int] = []

    def counted(send: Send) -> requests.Response:
        sent.append(1)
        return send()

    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    monkeypatch.setattr(Transaction, "commit_transaction", lambda _: pytest.fail("a transaction's commit"))
    with on_commit(lake, counted), pytest.raises(Conflict):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert len(sent) == 1


def test_manifests_become_one_where_the_table_asks_for_it(lake: CatalogClient, filled: str) -> None:
    """What is committed every few seconds for years would list thousands of them with each commit."""
    set_properties(lake, filled, {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "4"})
    for number in range(2, 9):
        land(lake, filled, number)
        table = lake.pyiceberg.load_table(filled)
        head = table.current_snapshot()
        assert head
        assert len(head.manifests(table.io)) < 5
    assert ids_in(lake, filled) == [*range(1, 9)]
    staged = stage(lake, filled, 9)
    foreign_commit(lake, filled, 99)
    publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    assert ids_in(lake, filled) == [*range(1, 10), 99]


def test_restaging_uses_the_same_files_again(lake: CatalogClient, filled: str) -> None:
    refused = stage(lake, filled, 2, 3)
    foreign_commit(lake, filled, 100)
    before = load(lake, filled).main
    state = publish_again(lake, filled, "ours", refused.snapshot, lambda _: {"test.ids": "2,3"})
    assert ids_in(lake, filled) == [1, 2, 3, 100]
    newest = next(state.ancestors())
    assert newest.parent == before
    assert state.refs["ours"] == newest.id
    assert files_of(lake, filled, newest.id) == files_of(lake, filled, refused.snapshot)
    assert newest.summary["test.ids"] == "2,3"
    assert newest.summary["added-records"] == "2"
    assert newest.summary["total-records"] == "4"


def test_restaging_what_has_been_published_doubles_nothing(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    publish(lake, filled, "ours", staged.snapshot, staged.parent)
    foreign_commit(lake, filled, 100)
    state = publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    assert state.refs["ours"] == staged.snapshot
    assert ids_in(lake, filled) == [1, 2, 100]


def test_restaging_is_refused_where_the_files_no_longer_fit(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    with lake.pyiceberg.load_table(filled).update_spec() as update:
        update.remove_field("site")
    with pytest.raises(RequestRefused, match="partitioned"):
        publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})


def test_restaging_goes_on_after_a_column_was_added(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    add_columns(lake, filled, [("", Column("unit", "string"))])
    publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    assert ids_in(lake, filled) == [1, 2, 100]


def test_restaging_with_a_lost_answer_doubles_nothing(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    foreign_commit(lake, filled, 100)
    told: list[int] = []
    with on_commit(lake, answer_lost):
        state = publish_again(lake, filled, "ours", staged.snapshot, lambda _: {}, lambda at, _: told.append(at))
    assert told == [1]
    assert state.refs["ours"] == state.main
    assert ids_in(lake, filled) == [1, 2, 100]


def test_an_append_is_published_with_one_commit(lake: CatalogClient, others: CatalogClient, filled: str) -> None:
    """Upon whatever main is; what waits on the branch stays unseen, and its files are nobody's."""
    waits = stage(lake, filled, 2)
    foreign_commit(others, filled, 100)
    before = load(lake, filled).main
    state = append_published(lake, filled, "ours", [{"id": 3, "site": "north"}], lambda _: {"test.ids": "3"})
    newest = next(state.ancestors())
    assert (newest.parent, newest.summary["test.ids"]) == (before, "3")
    assert state.refs["ours"] == state.main == newest.id
    assert waits.snapshot not in {each.id for each in state.ancestors()}
    assert ids_in(lake, filled) == [1, 3, 100]


@pytest.mark.parametrize("lost", [answer_lost, request_lost], ids=["heard", "not heard"])
def test_an_append_without_an_answer_is_there_once(
    lake: CatalogClient, filled: str, lost: Callable[[Send], requests.Response]
) -> None:
    told, sent = list[int](), list[int]()

    def once(send: Send) -> requests.Response:
        sent.append(1)
        return lost(send) if len(sent) == 1 else send()

    with on_commit(lake, once):
        rows = [{"id": 2, "site": "south"}]
        state = append_published(lake, filled, "ours", rows, lambda _: {}, lambda at, _: told.append(at))
    assert told == [1]
    assert state.refs["ours"] == state.main
    assert ids_in(lake, filled) == [1, 2]


def test_an_append_comes_through_between_the_commits_of_others(
    lake: CatalogClient, others: CatalogClient, filled: str
) -> None:
    """And who writes without the branch is shut out."""
    looks, told = count(1), list[int]()

    def meanwhile(_: TableState) -> dict[str, str]:
        if (look := next(looks)) <= 2:
            foreign_commit(others, filled, 100 + look)
        return {}

    append_published(lake, filled, "ours", [{"id": 2, "site": "south"}], meanwhile, lambda at, _: told.append(at))
    assert told == [1, 2]
    assert ids_in(lake, filled) == [1, 2, 101, 102]
    open_branch(others, filled, "newer", drop=["ours"])
    with pytest.raises(BranchGone):
        append_published(lake, filled, "ours", [{"id": 3, "site": "south"}], lambda _: {})
    assert ids_in(lake, filled) == [1, 2, 101, 102]


def test_a_branch_is_kept_whatever_age_a_table_allows(lake: CatalogClient, filled: str) -> None:
    table = lake.pyiceberg.load_table(filled)
    assert table.metadata.refs["ours"].max_ref_age_ms == 2**63 - 1
    assert table.metadata.refs["main"].max_ref_age_ms is None
    land(lake, filled, 2)
    assert lake.pyiceberg.load_table(filled).metadata.refs["ours"].max_ref_age_ms == 2**63 - 1


def compact(lake: CatalogClient, name: str) -> None:
    table = lake.pyiceberg.load_table(name)
    table.overwrite(table.scan().to_arrow())


def expire(lake: CatalogClient, name: str) -> None:
    """All that no ref leads to directly: main's way back ends at its head."""
    table = lake.pyiceberg.load_table(name)
    held = {ref.snapshot_id for ref in table.metadata.refs.values()}
    expiry = table.maintenance.expire_snapshots()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id not in held:
            expiry = expiry.by_id(snapshot.snapshot_id)
    expiry.commit()
    assert not load(lake, name).history_complete()


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not heard"])
def test_where_history_was_cut_a_note_tells_what_was_published(
    lake: CatalogClient, others: CatalogClient, filled: str, *, heard: bool
) -> None:
    def cut_meanwhile(send: Send) -> requests.Response:
        if heard:
            assert send().ok
        for _ in range(2):
            compact(others, filled)
        expire(others, filled)
        raise requests.ConnectionError("Connection aborted.")

    staged = stage(lake, filled, 2)
    with on_commit(lake, cut_meanwhile), nullcontext() if heard else pytest.raises(Conflict, match="main does not"):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    assert ids_in(lake, filled) == [1, 2]
    assert any(key.startswith("published.") for key in load(lake, filled).properties)
    open_branch(lake, filled, "newer", drop=["ours"])
    assert not any(key.startswith("published.") for key in load(lake, filled).properties)


def test_what_another_ref_keeps_of_a_history_that_was_cut_is_not_staged_again(
    kind: Kind, lake: CatalogClient, filled: str
) -> None:
    """Main does not show any more that it held it."""
    kind.needs(Can.CUTS)
    table = lake.pyiceberg.load_table(filled)
    table.manage_snapshots().create_tag(load(lake, filled).main or 0, "kept").commit()
    staged = stage(lake, filled, 2)
    for _ in range(2):
        compact(lake, filled)
    expire(lake, filled)
    publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    assert ids_in(lake, filled) == [1, 2]


def test_neighbours_that_never_rest_keep_nobody_out(lake: CatalogClient, others: CatalogClient, filled: str) -> None:
    """Between our look at the table and our commit somebody else's comes, again and again, but not for ever."""
    row = lake.pyiceberg.load_table(filled).scan(limit=1).to_arrow()
    first = 5  # so often are they
    refused: list[int] = []
    for landed in (2, 3):
        looks = count(1)

        def meanwhile(_: TableState, looks: Iterator[int] = looks) -> dict[str, str]:
            if next(looks) <= first:
                others.pyiceberg.load_table(filled).append(row)
            return {}

        staged = stage(lake, filled, landed)
        others.pyiceberg.load_table(filled).append(row)
        with pytest.raises(Conflict):
            publish(lake, filled, "ours", staged.snapshot, staged.parent)
        publish_again(lake, filled, "ours", staged.snapshot, meanwhile, lambda at, _: refused.append(at))
        assert refused == [*range(1, first + 1)]
        refused.clear()
    assert [each for each in ids_in(lake, filled) if each > 1] == [2, 3]


def test_an_older_writer_is_fenced_when_its_branch_is_dropped(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    open_branch(lake, filled, "newer", drop=["ours"])
    with pytest.raises(BranchGone):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    with pytest.raises(BranchGone):
        publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    with pytest.raises(BranchGone):
        stage(lake, filled, 3)
    assert ids_in(lake, filled) == [1]


def test_a_lost_answer_is_settled_by_looking(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    with on_commit(lake, answer_lost):
        state = publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert state.main == staged.snapshot
    assert ids_in(lake, filled) == [1, 2]


def test_a_request_that_never_arrived_is_a_conflict(lake: CatalogClient, filled: str) -> None:
    staged = stage(lake, filled, 2)
    with on_commit(lake, request_lost), pytest.raises(Conflict, match="main does not hold it"):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert ids_in(lake, filled) == [1]
    state = publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert state.main == staged.snapshot


@pytest.mark.parametrize("arrives", ["before the restaging", "after the restaging"])
def test_a_request_that_arrives_late_doubles_nothing(lake: CatalogClient, filled: str, arrives: str) -> None:
    late: list[Send] = []

    def held(send: Send) -> requests.Response:
        late.append(send)
        raise requests.ReadTimeout("slow")

    staged = stage(lake, filled, 2)
    with on_commit(lake, held), pytest.raises(Conflict):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)
    if arrives == "before the restaging":
        assert late[0]().status_code == 200
    publish_again(lake, filled, "ours", staged.snapshot, lambda _: {})
    if arrives == "after the restaging":
        assert late[0]().status_code == 409
    assert ids_in(lake, filled) == [1, 2]


def test_a_refusal_that_answers_a_repeated_request_is_settled_as_a_success(lake: CatalogClient, filled: str) -> None:
    """A proxy that sends a commit twice hands out the refusal of the second."""

    def twice(send: Send) -> requests.Response:
        send()
        return send()

    staged = stage(lake, filled, 2)
    with on_commit(lake, twice):
        state = publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert state.main == staged.snapshot


def test_without_any_answer_the_outcome_stays_unknown(
    lake: CatalogClient, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = stage(lake, filled, 2)

    def unreachable(*_: object) -> None:
        raise requests.ConnectionError("Connection aborted.")

    def lost_for_good(_: Send) -> requests.Response:
        monkeypatch.setattr(lake.pyiceberg, "load_table", unreachable)
        raise requests.ConnectionError("Connection aborted.")

    with on_commit(lake, lost_for_good), pytest.raises(OutcomeUnknown):
        publish(lake, filled, "ours", staged.snapshot, staged.parent)


def test_staging_with_a_lost_answer_stages_once(lake: CatalogClient, filled: str) -> None:
    lost: list[int] = []

    def first_lost(send: Send) -> requests.Response:
        answer = send()
        if not lost:
            lost.append(1)
            raise requests.ConnectionError("Connection aborted.")
        return answer

    with on_commit(lake, first_lost):
        staged = stage(lake, filled, 2)
    publish(lake, filled, "ours", staged.snapshot, staged.parent)
    assert ids_in(lake, filled) == [1, 2]


def test_parallel_tables_are_published_side_by_side(kind: Kind, lake: CatalogClient) -> None:
    def run(number: int) -> list[int]:
        name = f"{NAMESPACE}.p{uuid.uuid4().hex[:8]}"
        create_table(lake, TableSpec(name, COLUMNS))
        begin(kind, lake, name)
        open_branch(lake, name, "ours")
        for batch in range(3):
            land(lake, name, number, batch)
        return ids_in(lake, name)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [sorted([n] * 3 + [0, 1, 2]) for n in range(4)]


def test_dropping_branches_is_repeatable(lake: CatalogClient, filled: str) -> None:
    assert drop_branches(lake, filled, ["ours", "other"]).refs.keys() == {"main"}
    assert drop_branches(lake, filled, ["ours"]).refs.keys() == {"main"}
    with pytest.raises(ValueError, match="main"):
        drop_branches(lake, filled, ["main"])


def test_columns_are_added_at_every_depth_in_one_commit(lake: CatalogClient) -> None:
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


def test_those_who_add_columns_at_once_all_succeed(lake: CatalogClient, name: str) -> None:
    def add(number: int) -> None:
        own, shared = Column(f"c{number}", "long"), Column("shared", "string")
        add_columns(lake, name, [("", own), ("", shared)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    names = [column.name for column in load(lake, name).columns]
    assert sorted(names) == ["c0", "c1", "c2", "c3", "id", "shared", "site"]


def test_the_walk_back_tells_where_history_was_pruned(kind: Kind, lake: CatalogClient, filled: str) -> None:
    kind.needs(Can.BRANCH_FIRST)
    land(lake, filled, 2)
    state = land(lake, filled, 3)
    # The first of them is the empty one that the branch was opened with: never part of main.
    walked = list(state.ancestors())
    assert [snapshot.summary["test.ids"] for snapshot in walked] == ["3", "2", "1"]
    assert state.history_complete()
    oldest = walked[-1]
    lake.pyiceberg.load_table(filled).maintenance.expire_snapshots().by_id(oldest.id).commit()
    pruned = load(lake, filled)
    assert [snapshot.id for snapshot in pruned.ancestors()] == [walked[0].id, walked[1].id]
    assert not pruned.history_complete()
    assert pruned.contains(walked[1].id) is True
    assert pruned.contains(oldest.id) is None


def test_rows_with_an_unknown_column_are_refused(lake: CatalogClient, filled: str) -> None:
    with pytest.raises(RequestRefused, match="oops"):
        append_rows(lake, filled, "ours", [{"id": 1, "oops": 2}], {})
    with pytest.raises(RequestRefused):
        append_rows(lake, filled, "ours", [{"id": "no number"}], {})


def test_a_closed_port_is_unreachable_within_seconds() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*refused"):
        connect(Connection(f"http://127.0.0.1:{port}", token=SENT_TOKEN))
    assert time.monotonic() - started < 5


def test_no_secret_is_shown(rest_uri: str) -> None:
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


# -- where main is the only ref ---------------------------------------------------------------------------


def stage_unseen(lake: CatalogClient, name: str, *ids: int) -> UnpublishedSnapshot:
    """As Spark does it where write-audit-publish is on: a snapshot upon main's head that no ref leads to."""
    table = lake.table(name)
    rows = [{"id": number, "site": "north"} for number in ids]
    append = append_onto_main(table, written_files(table, rows), {"test.ids": ",".join(map(str, ids))})
    commit(lake, table, "staging", (), append.updates)
    return UnpublishedSnapshot(append.snapshot, load(lake, name).main)


def anyhow(_: TableState) -> dict[str, str]:
    return {"test.by": "us"}


def counting(lake: CatalogClient, sent: list[int], *, lost: int = 0) -> Any:
    """Counts the commits; the first so many take effect, and nobody is told."""

    def act(send: Send) -> requests.Response:
        sent.append(1)
        answer = send()
        if len(sent) <= lost:
            raise requests.ConnectionError("Connection aborted.")
        return answer

    return on_commit(lake, act)


@pytest.fixture
def plain(lake: CatalogClient, name: str) -> str:
    """A table with one row, and no ref but main."""
    append_onto(lake, name, [{"id": 1, "site": "north"}], anyhow)
    return name


def test_a_snapshot_without_a_ref_is_seen_by_nobody_until_main_is_moved_to_it(lake: CatalogClient, plain: str) -> None:
    staged = stage_unseen(lake, plain, 2)
    assert ids_in(lake, plain) == [1]
    state = publish(lake, plain, None, staged.snapshot, staged.parent)
    assert state.main == staged.snapshot
    assert state.refs.keys() == {"main"}
    assert ids_in(lake, plain) == [1, 2]
    assert publish(lake, plain, None, staged.snapshot, staged.parent).main == staged.snapshot


@pytest.mark.parametrize("rows", [0, 1])
def test_a_fence_moves_main_and_nothing_else(lake: CatalogClient, name: str, rows: int) -> None:
    """One commit, with a property; what was staged before is refused, also where there had been no main yet."""
    if rows:
        foreign_commit(lake, name, 1)
    staged, sent = stage_unseen(lake, name, 2), list[int]()
    with counting(lake, sent):
        state = fence(lake, name, anyhow, {"test.epoch": "7"})
    assert len(sent) == 1
    assert state.properties["test.epoch"] == "7"
    assert next(state.ancestors()).summary["test.by"] == "us"
    assert next(state.ancestors()).parent == staged.parent
    assert state.history_complete()
    assert ids_in(lake, name) == [1][:rows]
    with pytest.raises(Conflict):
        publish(lake, name, None, staged.snapshot, staged.parent)
    assert ids_in(lake, name) == [1][:rows]


def test_of_those_who_take_the_same_number_by_a_fence_at_once_one_gets_it(lake: CatalogClient, name: str) -> None:
    class Taken(Exception): ...

    def attempt(_: int) -> bool:
        def decide(state: TableState) -> dict[str, str]:
            if "test.epoch" in state.properties:
                raise Taken
            return {}

        try:
            fence(lake, name, decide, {"test.epoch": "1"})
        except Taken:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(4))) == 1
    assert len(load(lake, name).snapshots) == 1


def test_what_was_refused_is_committed_with_its_files_by_one_commit(lake: CatalogClient, plain: str) -> None:
    staged, sent = stage_unseen(lake, plain, 2, 3), list[int]()
    foreign_commit(lake, plain, 100)
    with pytest.raises(Conflict):
        publish(lake, plain, None, staged.snapshot, staged.parent)
    add_columns(lake, plain, [("", Column("unit", "string"))])
    with counting(lake, sent):
        state = recommit_onto(lake, plain, staged.snapshot, anyhow)
    assert len(sent) == 1
    newest = next(state.ancestors())
    assert files_of(lake, plain, newest.id) == files_of(lake, plain, staged.snapshot)
    assert (newest.summary["test.by"], newest.summary["added-records"], newest.summary["total-records"]) == (
        "us",
        "2",
        "4",
    )
    assert ids_in(lake, plain) == [1, 2, 3, 100]


def test_whoever_moves_main_in_between_is_shown_before_it_is_tried_again(lake: CatalogClient, plain: str) -> None:
    """Or else a writer could commit upon the fence that was to keep it out."""
    shown: list[int | None] = []

    class Replaced(Exception): ...

    def decide(state: TableState) -> dict[str, str]:
        shown.append(state.main)
        if "test.epoch" in state.properties:
            raise Replaced
        fence(lake, plain, anyhow, {"test.epoch": "2"})
        return {}

    with pytest.raises(Replaced):
        append_onto(lake, plain, [{"id": 2}], decide)
    assert len(shown) == 2
    assert ids_in(lake, plain) == [1]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_answer_doubles_nothing_on_main(lake: CatalogClient, plain: str, lost: int) -> None:
    staged = stage_unseen(lake, plain, 3)
    with counting(lake, [], lost=lost):
        append_onto(lake, plain, [{"id": 2}], anyhow)
    with counting(lake, [], lost=lost):
        state = fence(lake, plain, anyhow, {})
    with counting(lake, [], lost=lost):
        recommit_onto(lake, plain, staged.snapshot, anyhow)
    assert ids_in(lake, plain) == [1, 2, 3]
    assert len(list(state.ancestors())) == 3


@pytest.mark.parametrize("arrives", ["before it is committed again", "after it"])
def test_a_publication_without_a_branch_that_arrives_late_doubles_nothing(
    lake: CatalogClient, plain: str, arrives: str
) -> None:
    late: list[Send] = []

    def held(send: Send) -> requests.Response:
        late.append(send)
        raise requests.ReadTimeout("slow")

    staged = stage_unseen(lake, plain, 2)
    with on_commit(lake, held), pytest.raises(Conflict, match="main does not hold it"):
        publish(lake, plain, None, staged.snapshot, staged.parent)
    if arrives == "before it is committed again":
        assert late[0]().status_code == 200
    recommit_onto(lake, plain, staged.snapshot, anyhow)
    if arrives == "after it":
        assert late[0]().status_code == 409
    assert ids_in(lake, plain) == [1, 2]


def test_a_commit_upon_main_that_arrives_late_doubles_nothing(lake: CatalogClient, plain: str) -> None:
    """The first request is heard only after the second look has found nothing of it."""
    late: list[Send] = []

    def decide(_: TableState) -> dict[str, str]:
        if late:
            assert late[0]().status_code == 200
        return {}

    def held(send: Send) -> requests.Response:
        if not late:
            late.append(send)
            raise requests.ReadTimeout("slow")
        return send()

    with on_commit(lake, held):
        append_onto(lake, plain, [{"id": 2}], decide)
    assert ids_in(lake, plain) == [1, 2]


def test_where_the_history_that_could_tell_is_gone_the_outcome_stays_unknown(
    lake: CatalogClient, plain: str, others: CatalogClient
) -> None:
    """An attempt went unanswered, and then somebody moved main and expired what was before."""

    def lost_and_expired(_: Send) -> requests.Response:
        foreign_commit(others, plain, 100)
        older = [each for each in load(others, plain).snapshots if each != load(others, plain).main]
        others.pyiceberg.load_table(plain).maintenance.expire_snapshots().by_ids(older).commit()
        raise requests.ConnectionError("Connection aborted.")

    with on_commit(lake, lost_and_expired), pytest.raises(OutcomeUnknown, match="expired"):
        append_onto(lake, plain, [{"id": 2}], anyhow)


def test_what_others_have_expired_before_it_was_published_is_to_be_written_anew(
    lake: CatalogClient, plain: str
) -> None:
    staged = stage_unseen(lake, plain, 2)
    lake.pyiceberg.load_table(plain).maintenance.expire_snapshots().by_id(staged.snapshot).commit()
    with pytest.raises(FilesUnfit, match="expired"):
        publish(lake, plain, None, staged.snapshot, staged.parent)
    with pytest.raises(FilesUnfit, match="expired"):
        recommit_onto(lake, plain, staged.snapshot, anyhow)
    assert ids_in(lake, plain) == [1]


def test_a_catalog_that_takes_no_branch_says_so(lake: CatalogClient, plain: str) -> None:
    def no(_: Send) -> requests.Response:
        answer = requests.Response()
        answer.status_code = 400
        answer._content = b'{"error": {"message": "only main", "type": "BadRequestException", "code": 400}}'
        return answer

    with on_commit(lake, no), pytest.raises(BranchesRefused, match="only main"):
        open_branch(lake, plain, "ours")
