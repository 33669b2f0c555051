"""What `catalog` promises, on every catalog of `tests/services/catalogs.py`."""

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import requests

import catalog
from catalog import (
    Attempts,
    BranchesRefused,
    BranchGone,
    CatalogClient,
    Column,
    Conflict,
    Connection,
    Expected,
    FencePosition,
    OutcomeUnknown,
    Partition,
    RequestRefused,
    Sort,
    TableMissing,
    TableSpec,
    TableState,
    Unreachable,
    add_columns,
    append_onto,
    connect,
    create_table,
    drop_branches,
    ensure_namespace,
    fence,
    land_rows,
    load,
    open_branch,
    plan,
    rewrite_rows,
    set_properties,
)
from catalog.appends import written_files
from catalog.commits import MAIN, append_onto_main, commit, ref_is_at, set_branch
from catalog.conversions import state_of
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
    rows = [{"id": number, "site": "north" if number % 2 else "south"} for number in ids]
    return land_rows(
        lake, name, rows, held(lake, name, branch), lambda _: {"test.ids": ",".join(map(str, ids))}, Attempts()
    )


def held(lake: CatalogClient, name: str, branch: str = "ours") -> Expected:
    """The writer's fence as it is now."""
    state = load(lake, name)
    return Expected(state.uuid, FencePosition(branch, state.refs[branch]))


def foreign_commit(lake: CatalogClient, name: str, *ids: int) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "site": pa.array(["foreign"] * len(ids), pa.string())}))


def ids_in(lake: CatalogClient, name: str) -> list[int]:
    return sorted(lake.pyiceberg.load_table(name).scan().to_arrow()["id"].to_pylist())


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


def test_on_an_empty_table_main_stays_unset_until_the_first_commit(kind: Kind, lake: CatalogClient, name: str) -> None:
    kind.needs(Can.BRANCH_FIRST)
    opened = open_branch(lake, name, "ours")
    assert opened.main is None
    assert "ours" in opened.refs
    assert load(lake, name).main is None
    state = land(lake, name, 1, 2)
    assert state.main == state.refs["ours"]
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


def test_a_branch_of_an_empty_table_is_opened_while_another_writer_begins(
    kind: Kind, lake: CatalogClient, others: CatalogClient, name: str
) -> None:
    """Main is unset for both, so that it has not moved does not tell; the numbers of their first snapshots do."""
    kind.needs(Can.BRANCH_FIRST)
    begun: list[TableState] = []

    def begin_meanwhile(send: Send) -> requests.Response:
        if not begun:
            begun.append(open_branch(others, name, "theirs"))
        return send()

    with on_commit(lake, begin_meanwhile):
        assert open_branch(lake, name, "ours").refs.keys() == {"theirs", "ours"}
    land(others, name, 1, branch="theirs")
    foreign_commit(others, name, 2)
    land(lake, name, 3)
    assert ids_in(lake, name) == [1, 2, 3]


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


def test_neighbours_that_never_rest_keep_nobody_out(lake: CatalogClient, others: CatalogClient, filled: str) -> None:
    """Between our look at the table and our commit somebody else's comes, again and again, but not for ever."""
    row = lake.pyiceberg.load_table(filled).scan(limit=1).to_arrow()
    first = 5  # so often are they
    refused: list[int] = []
    for number in (2, 3):
        looks = count(1)

        def meanwhile(_: TableState, looks: Iterator[int] = looks) -> dict[str, str]:
            if next(looks) <= first:
                others.pyiceberg.load_table(filled).append(row)
            return {}

        ours = held(lake, filled)
        land_rows(lake, filled, [{"id": number}], ours, meanwhile, Attempts(), lambda at, _: refused.append(at))
        assert refused == [*range(1, first + 1)]
        refused.clear()
    assert [each for each in ids_in(lake, filled) if each > 1] == [2, 3]


def test_what_earlier_versions_noted_of_a_branch_goes_with_it(lake: CatalogClient, filled: str) -> None:
    set_properties(lake, filled, {"published.ours": "1", "published.theirs": "2"})
    found = open_branch(lake, filled, "newer", drop=["ours"]).properties
    assert [key for key in found if key.startswith("published.")] == ["published.theirs"]


def test_an_older_writer_is_fenced_when_its_branch_is_dropped(lake: CatalogClient, filled: str) -> None:
    ours = held(lake, filled)
    open_branch(lake, filled, "newer", drop=["ours"])
    with pytest.raises(BranchGone):
        land_rows(lake, filled, [{"id": 2}], ours, lambda _: {}, Attempts())
    assert ids_in(lake, filled) == [1]


def test_parallel_tables_are_written_side_by_side(kind: Kind, lake: CatalogClient) -> None:
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
        append_onto(lake, filled, [{"id": 1, "oops": 2}], anyhow)
    with pytest.raises(RequestRefused):
        append_onto(lake, filled, [{"id": "no number"}], anyhow)


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


@pytest.mark.parametrize("rows", [0, 1])
def test_a_fence_moves_main_and_nothing_else(lake: CatalogClient, name: str, rows: int) -> None:
    """One commit, with a property; what requires main as it was is refused, also where there had been no main yet."""
    if rows:
        foreign_commit(lake, name, 1)
    built, sent = lake.table(name), list[int]()
    late = append_onto_main(built, written_files(built, [{"id": 2}]), {})
    with counting(lake, sent):
        state = fence(lake, name, anyhow, {"test.epoch": "7"})
    assert len(sent) == 1
    assert state.properties["test.epoch"] == "7"
    assert next(state.ancestors()).summary["test.by"] == "us"
    before = state_of(built).main
    assert next(state.ancestors()).parent == before
    assert state.history_complete()
    assert ids_in(lake, name) == [1][:rows]
    with pytest.raises(Conflict):
        commit(lake, built, "appending", (ref_is_at(MAIN, before),), (*late.updates, set_branch(MAIN, late.snapshot)))
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
    with counting(lake, [], lost=lost):
        append_onto(lake, plain, [{"id": 2}], anyhow)
    with counting(lake, [], lost=lost):
        state = fence(lake, plain, anyhow, {})
    assert ids_in(lake, plain) == [1, 2]
    assert len(list(state.ancestors())) == 3


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


def test_a_catalog_that_takes_no_branch_says_so(lake: CatalogClient, plain: str) -> None:
    def no(_: Send) -> requests.Response:
        answer = requests.Response()
        answer.status_code = 400
        answer._content = b'{"error": {"message": "only main", "type": "BadRequestException", "code": 400}}'
        return answer

    with on_commit(lake, no), pytest.raises(BranchesRefused, match="only main"):
        open_branch(lake, plain, "ours")
