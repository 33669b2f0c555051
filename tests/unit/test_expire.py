"""Which snapshots go: a bounded number stays, the newest mark of every pipeline with it, and never a gap."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.ledger import keys
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark, Summary
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.tables.retention import FEWEST, ROOM, YOUNG, Retention, is_due, is_left_behind

PIPELINES = ("p", "q", "r")
HISTORIES = st.lists(st.sets(st.sampled_from(PIPELINES)), max_size=40)


def ancestors(marks: list[set[str]]) -> list[tuple[int, Summary]]:
    """Newest first, each with the pipelines whose mark it carries."""
    return [
        (1000 + number, {"added-records": "1", **{f"{MARK}{pipeline}": "mark" for pipeline in carried}})
        for number, carried in enumerate(marks)
    ]


def doomed(history: Sequence[tuple[int, Summary]], keep: int) -> list[int]:
    return [snapshot for snapshot, _ in history[Retention(keep).kept((0, summary) for _, summary in history) :]]


def landing(pipeline: str, epoch: int, carried: Summary | None = None) -> Summary:
    return ledger.to_summary(Mark(Token(pipeline, 2, epoch, 5), SourceIdentity(), {}, {}, {}), carried or {})


HOUR = 3600.0


class TestExpiredSnapshots:
    @given(HISTORIES, st.integers(1, 50))
    def test_leave_an_unbroken_run_with_the_newest_mark_of_every_pipeline(
        self, marks: list[set[str]], keep: int
    ) -> None:
        history = ancestors(marks)
        gone = doomed(history, keep)
        stays = len(history) - len(gone)
        assert gone == [snapshot for snapshot, _ in history[stays:]], "a gap would cut the ledger's walk short"
        for pipeline in PIPELINES:
            newest = next((number for number, carried in enumerate(marks) if pipeline in carried), None)
            assert newest is None or newest < stays

    @given(HISTORIES, st.integers(1, 50))
    def test_leave_at_most_keep_unless_a_mark_is_older(self, marks: list[set[str]], keep: int) -> None:
        stays = len(marks) - len(doomed(ancestors(marks), keep))
        oldest = max(
            (marks.index(next(c for c in marks if p in c)) for p in PIPELINES if any(p in c for c in marks)), default=0
        )
        assert stays <= max(keep, oldest + 1)

    @given(HISTORIES, st.integers(2, 50))
    def test_leave_at_most_keep_if_each_commit_carries_all_marks(self, marks: list[set[str]], keep: int) -> None:
        """As ours do: the newest commit of anybody carries the others' marks."""
        whole = [{*PIPELINES}, *marks]
        assert len(whole) - len(doomed(ancestors(whole), keep)) <= keep

    @given(st.integers(2, 200))
    def test_never_include_the_head(self, keep: int) -> None:
        assert doomed(ancestors([set()]), keep) == []
        assert doomed([], keep) == []

    def test_are_a_fifth_of_the_history_at_once(self) -> None:
        assert len(doomed(ancestors([{"p"}] * 100), 100)) == 20

    def test_are_older_than_the_mark_of_an_idle_pipeline(self) -> None:
        marks = [{"p"}] * 150 + [{"q"}] + [{"p"}] * 50
        assert doomed(ancestors(marks), 100) == [1000 + number for number in range(151, 201)]

    def test_are_removed_as_soon_as_they_are_a_fifth(self) -> None:
        """So that a table has as many snapshots as the setting says, and not each landing pays for it."""
        for keep in range(2, 300):
            kept = Retention(keep).kept((0, {}) for _ in range(keep))
            assert is_due(keep, keep - kept)
            assert not is_due(kept, 0)


class TestUnpublishedSnapshot:
    def test_is_removed_unless_a_newer_start_wrote_it(self) -> None:
        """A start may be as late with its expiry as with anything: what a newer one has staged is none of its
        business."""
        assert [is_left_behind(landing("p", epoch), "p", 7) for epoch in (6, 7, 8)] == [True, True, False]

    def test_of_another_pipeline_is_kept_though_it_carries_our_mark(self) -> None:
        others = landing("q", 1, landing("p", 3))
        assert f"{MARK}p" in others
        assert not is_left_behind(others, "p", 7)
        assert not is_left_behind({"wap.id": "an audit's"}, "p", 7)
        assert is_left_behind(landing("a/b", 1), "a/b", 7)


class TestRetention:
    @given(st.lists(st.integers(0, 7200), min_size=1, max_size=300), st.integers(2, 50), st.integers(0, int(HOUR)))
    def test_keeps_what_a_query_began_to_read_within_keep_for(self, gaps: list[int], keep: int, age: int) -> None:
        """A query reads what was the head when it began. Whoever begins just before a landing has it for so long."""
        now = sum(gaps)
        times = [now - sum(gaps[:index]) for index in range(len(gaps))]
        kept = Retention(keep, HOUR).kept((time * 1000, {}) for time in times)
        if age < HOUR:
            began = next((index for index, time in enumerate(times) if time <= now - age), len(times) - 1)
            assert began < kept, "what it reads is gone"
        assert kept >= min(len(times), max(1, keep * 4 // 5))

    def test_keeps_an_old_snapshot_that_was_the_head_a_moment_ago(self) -> None:
        """It was the head for days, and a burst of landings came upon it."""
        times = [*range(1000, 900, -1), -500_000]
        assert Retention(10, HOUR).kept((time * 1000, {}) for time in times) == len(times)
        assert Retention(10).kept((time * 1000, {}) for time in times) == 8

    def test_by_age_is_bounded_by_number_and_size(self) -> None:
        """With a landing each second an hour is 3,600 snapshots, and every commit would write them all."""
        assert Retention(100, HOUR).kept((second * 1000, {}) for second in range(3600, 0, -1)) == YOUNG
        wide = {f"{MARK}p": "m" * 5_000}
        assert Retention(100, HOUR).kept((second * 1000, wide) for second in range(3600, 0, -1)) == ROOM // 5_016

    @pytest.mark.parametrize(("streams", "tables"), [(1, 10), (5, 584), (20, 584)])
    def test_bounds_the_metadata_with_many_streams_and_tables(self, streams: int, tables: int) -> None:
        """The batch record's summaries carry the settings, the heads and the mark of every stream of the namespace: the
        metadata grow with streams and tables, and not with those times the number of snapshots."""
        offsets = {("topic", number): 10**9 + number * 7919 for number in range(20)}
        extra: dict[str, str] = {}
        for number in range(streams):
            heads = {f"lake.table_{number}_{table}": (number + 1, table * 31) for table in range(tables)}
            extra |= {
                f"{keys.HEADS}s{number}": ledger.heads_text(heads),
                f"{keys.SETTINGS}s{number}": "x" * 1_000,
                f"{MARK}s{number}": ledger.encode(
                    Mark(Token("s", 1, 9, 1), SourceIdentity(), offsets, offsets, offsets)
                ),
            }
        one = sum(len(key) + len(text) for key, text in extra.items())
        history: list[Summary] = []
        most = 0
        for batch in range(200):
            mark = Mark(Token(f"s{batch % streams}", 1, 9, batch), SourceIdentity(), offsets, offsets, offsets)
            history.insert(0, {**extra, **ledger.to_summary(mark, ledger.carried(history))})
            most = max(most, sum(len(key) + len(text) for each in history for key, text in each.items()))
            kept = Retention(100).kept((0, each) for each in history)
            if is_due(len(history), len(history) - kept):
                history = history[:kept]
        assert one > streams * tables * 5, "this is what does not fit a hundred times"
        assert most <= 1.3 * max(ROOM + one, FEWEST * one)
