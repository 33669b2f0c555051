"""Plain values: what they read, print, hide and know of a history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Connection, Partition, Snapshot, Sort, TableState


class TestPartition:
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
    def test_prints_the_text_it_was_parsed_from(self, text: str) -> None:
        assert str(Partition.parse(text)) == text
        assert Partition.parse(str(Partition.parse(text))) == Partition.parse(text)

    @given(st.text(min_size=1), st.sampled_from(["identity", "day", "bucket[4]"]), st.one_of(st.none(), st.text()))
    def test_with_any_column_name_survives_printing_and_parsing(
        self, column: str, transform: str, name: str | None
    ) -> None:
        partition = Partition(column, transform, name)
        assert Partition.parse(str(partition)) == partition

    def test_is_parsed_despite_spaces_capitals_and_plurals(self) -> None:
        assert Partition.parse(" Days( ts ) ") == Partition("ts", "day")
        assert Partition.parse("bucket(16,id)") == Partition("id", "bucket[16]")

    @pytest.mark.parametrize("text", ["", "week(ts)", "bucket(id)", "bucket(0, id)", "day(2, ts)", "day(ts", "a, b"])
    def test_that_is_malformed_is_refused_with_the_valid_forms(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"understood are .*day\(.*bucket\(16, column\)"):
            Partition.parse(text)


class TestSort:
    def test_is_parsed_and_printed(self) -> None:
        assert Sort.parse("ts desc") == Sort("ts", descending=True)
        assert Sort.parse("ts ASC") == Sort("ts")
        assert str(Sort.parse("bucket(4, id) desc")) == "bucket(4, id) desc"
        with pytest.raises(ValueError, match="desc"):
            Sort.parse(" ")


class TestConnection:
    def test_shows_no_secret(self) -> None:
        connection = Connection(
            "http://user:geheim@host/", "house", token="geheim", properties={"credential": "a:geheim"}
        )
        assert "geheim" not in repr(connection)
        assert "geheim" not in f"{connection}"
        assert "credential" in repr(connection)


def state(*chain: tuple[int, int | None, int], **refs: int) -> TableState:
    snapshots = {id_: Snapshot(id_, parent, sequence, 0, {}) for id_, parent, sequence in chain}
    return TableState("n.t", "u", "file:/t", 2, 0, (), (), (), {}, refs, snapshots, "file:/m")


class TestHistory:
    def test_contains_only_the_ancestors_of_main(self) -> None:
        whole = state((1, None, 1), (2, 1, 2), (3, 1, 3), main=2, ours=3)
        assert whole.history_complete()
        assert whole.contains(1) is True
        assert whole.contains(3) is False
        assert whole.contains(99) is False
        assert [snapshot.id for snapshot in whole.ancestors("ours")] == [3, 1]

    def test_that_was_pruned_leaves_older_snapshots_undecided(self) -> None:
        pruned = state((3, 2, 3), (4, 3, 5), (5, 3, 4), (1, None, 1), main=4, ours=5, old=1)
        assert not pruned.history_complete()
        assert pruned.contains(5) is False, "main's third is older than it, and it is not above"
        assert pruned.contains(1) is None
        assert pruned.contains(99) is None

    def test_of_a_table_without_commits_is_complete(self) -> None:
        assert state().history_complete()
        assert state().main is None
        assert state().contains(1) is False

    def test_with_a_missing_head_is_not_complete(self) -> None:
        """As a server answers that gives only some snapshots."""
        assert not state(main=7).history_complete()
