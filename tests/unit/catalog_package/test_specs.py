"""Plain values: what they read, print, hide and know of a history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Connection, Partition, Snapshot, Sort, TableState


@pytest.mark.parametrize(
    "text",
    [
        "location",
        "day(event_time)",
        "bucket(16, id)",
        "truncate(4, name)",
        "hour(a.b)",
        "void(x)",
        "day(ts) as d",
        '"x as y"',
        '"x as y" as z',
        'day("amount (EUR)") as "a day"',
        'bucket(4, "say ""x"", y")',
    ],
)
def test_a_partition_prints_what_it_was_read_from(text: str) -> None:
    assert str(Partition.parse(text)) == text
    assert Partition.parse(str(Partition.parse(text))) == Partition.parse(text)


@given(st.text(min_size=1), st.sampled_from(["identity", "day", "bucket[4]"]), st.one_of(st.none(), st.text()))
def test_a_partition_of_any_name_is_read_back(column: str, transform: str, name: str | None) -> None:
    partition = Partition(column, transform, name)
    assert Partition.parse(str(partition)) == partition


def test_partitions_are_read_with_tolerance_for_spelling() -> None:
    assert Partition.parse(" Days( ts ) ") == Partition("ts", "day")
    assert Partition.parse("bucket(16,id)") == Partition("id", "bucket[16]")


@pytest.mark.parametrize("text", ["", "week(ts)", "bucket(id)", "bucket(0, id)", "day(2, ts)", "day(ts", "a, b"])
def test_what_is_no_partition_is_refused_with_what_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match=r"understood are .*day\(.*bucket\(16, column\)"):
        Partition.parse(text)


def test_sorts_are_read_and_printed() -> None:
    assert Sort.parse("ts desc") == Sort("ts", descending=True)
    assert Sort.parse("ts ASC") == Sort("ts")
    assert str(Sort.parse("bucket(4, id) desc")) == "bucket(4, id) desc"
    with pytest.raises(ValueError, match="desc"):
        Sort.parse(" ")


def test_a_connection_shows_no_secret() -> None:
    connection = Connection("http://user:geheim@host/", "house", token="geheim", properties={"credential": "a:geheim"})
    assert "geheim" not in repr(connection)
    assert "geheim" not in f"{connection}"
    assert "credential" in repr(connection)


def state(*chain: tuple[int, int | None, int], **refs: int) -> TableState:
    snapshots = {id_: Snapshot(id_, parent, sequence, 0, {}) for id_, parent, sequence in chain}
    return TableState("n.t", "u", "file:/t", 2, 0, (), (), (), {}, refs, snapshots, "file:/m")


def test_membership_is_told_where_it_can_be_proved() -> None:
    whole = state((1, None, 1), (2, 1, 2), (3, 1, 3), main=2, ours=3)
    assert whole.history_complete()
    assert whole.contains(1) is True
    assert whole.contains(3) is False
    assert whole.contains(99) is False
    assert [snapshot.id for snapshot in whole.ancestors("ours")] == [3, 1]


def test_pruned_history_leaves_open_what_is_older_than_its_end() -> None:
    pruned = state((3, 2, 3), (4, 3, 5), (5, 3, 4), (1, None, 1), main=4, ours=5, old=1)
    assert not pruned.history_complete()
    assert pruned.contains(5) is False, "main's third is older than it, and it is not above"
    assert pruned.contains(1) is None
    assert pruned.contains(99) is None


def test_a_table_without_commits_has_a_complete_history() -> None:
    assert state().history_complete()
    assert state().main is None
    assert state().contains(1) is False


def test_a_head_that_is_not_there_is_no_complete_history() -> None:
    """As a server answers that gives only some snapshots."""
    assert not state(main=7).history_complete()
