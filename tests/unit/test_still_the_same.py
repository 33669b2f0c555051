"""What a writer looks at again while it runs: whether topics and tables are still those that it began with."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from catalog import DataFileReceipt, Snapshot
from lakehouse_ingest.errors import NeedsOperator, Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger.keys import SETTINGS
from lakehouse_ingest.ledger.marks import Mark, to_summary
from lakehouse_ingest.pipeline import batch, reporting
from lakehouse_ingest.pipeline.batch import BatchRunner
from lakehouse_ingest.pipeline.one_start import refuse_recreated
from lakehouse_ingest.pipeline.passes import Outcome
from lakehouse_ingest.pipeline.reporting import BatchReports
from lakehouse_ingest.records import Range, SourceIdentity, Token
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.tally import LANDED, Tally
from lakehouse_ingest.tables import Position, TableState
from lakehouse_ingest.tables.effects import Landing
from lakehouse_ingest.tables.publishing import OnBranch

# -- topics -----------------------------------------------------------------------------------------------

BEFORE = SourceIdentity("cluster-1", {"t": "id-1", "u": "id-2"})


def source(identity: SourceIdentity) -> Source:
    return cast("Source", SimpleNamespace(identity=lambda: identity))


class TestTopics:
    def test_that_are_unchanged_are_read_on(self) -> None:
        refuse_recreated(source(SourceIdentity("cluster-1", {"u": "id-2", "t": "id-1"})), BEFORE)

    @pytest.mark.parametrize(
        ("now", "named"),
        [
            (SourceIdentity("cluster-1", {"t": "id-1", "u": "id-3"}), "u"),
            (SourceIdentity("cluster-1", {"t": "id-4", "u": "id-3"}), "t, u"),
            (SourceIdentity("cluster-2", {"t": "id-1", "u": "id-2"}), "cluster-2"),
        ],
        ids=["one of them", "both", "the cluster"],
    )
    def test_that_were_recreated_are_named_and_left_to_the_next_start(self, now: SourceIdentity, named: str) -> None:
        with pytest.raises(TryAgain, match=f"^{named} was recreated while it was read"):
            refuse_recreated(source(now), BEFORE)


# -- tables -----------------------------------------------------------------------------------------------

TABLE, PIPELINE, OURS = "ns.t", "plant", "ingest_plant_3"
UUID = "0b8f2c1e-1111"
UP_TO_NINE, UP_TO_FIVE = {("t", 0): 9}, {("t", 0): 5}


def mark(following: Mapping[tuple[str, int], int], epoch: int = 3, pipeline: str = PIPELINE, batch: int = 0) -> Mark:
    return Mark(Token(pipeline, 1, epoch, batch), BEFORE, {}, following, following)


def state(*summaries: Mapping[str, str], cut: bool = False, refs: Mapping[str, int] | None = None) -> TableState:
    """Main's snapshots, newest first; `cut`: the last of them had one before it."""
    newest = len(summaries)
    snapshots = {
        number: Snapshot(number, number - 1 if number > 1 or cut else None, number, 0, summary)
        for number, summary in zip(range(newest, 0, -1), summaries, strict=True)
    }
    refs = {"main": newest, OURS: 1} if refs is None else refs
    return TableState(TABLE, UUID, "", 2, 0, (), (), (), {}, refs, snapshots, "")


# Of a state that somebody else has loaded: no catalog is asked.
WAY = OnBranch(cast("Any", None), PIPELINE, lambda _table, _attempt, _error: None)
PLACE = Position(TABLE, OURS, 1, mark(UP_TO_NINE), to_summary(mark(UP_TO_NINE), {}), known=True, uuid=UUID)
MARKED = to_summary(mark(UP_TO_NINE), {})
BACK = to_summary(mark(UP_TO_FIVE, batch=-1), {})


class TestTable:
    def test_with_commits_of_other_programs_is_unchanged(self) -> None:
        now = WAY.unmoved(PLACE, state({}, {}, MARKED))
        assert (now.held, now.main) == (UP_TO_NINE, 3)

    def test_with_expired_history_keeps_the_mark_that_we_know(self) -> None:
        """Others compacted the table and expired what was before; that there is no mark is no sign of another
        writer."""
        now = WAY.unmoved(PLACE, state({}, cut=True))
        assert (now.held, now.main) == (UP_TO_NINE, 1)
        assert now.known

    def test_with_expired_history_does_not_carry_old_marks_of_others(self) -> None:
        """They may be older than what the others have landed since, and say that it is not there; settings may
        travel."""
        settings = {f"{SETTINGS}other": "{}"}
        carried = {**to_summary(mark(UP_TO_FIVE, pipeline="other"), MARKED), **settings}
        assert WAY.unmoved(replace(PLACE, carried=carried), state({}, cut=True)).carried == settings

    def test_with_older_marks_expired_is_unchanged(self) -> None:
        """Of a topic that is read no more only they tell."""
        rested = replace(PLACE, mark=mark({**UP_TO_NINE, ("rested", 0): 4}))
        assert WAY.unmoved(rested, state(MARKED, cut=True)).held == UP_TO_NINE

    def test_with_new_marks_of_another_pipeline_carries_them(self) -> None:
        other = to_summary(mark(UP_TO_FIVE, pipeline="other"), MARKED)
        now = WAY.unmoved(PLACE, state(other, cut=True))
        assert now.held == UP_TO_NINE
        assert now.carried == other

    def test_that_was_rolled_back_is_recognised_despite_expired_history(self) -> None:
        """No mark says so: main's history is cut, and our last landing, which our branch keeps, is no part of it."""
        back = state({}, cut=True, refs={"main": 1, OURS: 3})
        back = replace(back, snapshots={**back.snapshots, 3: Snapshot(3, 2, 3, 0, MARKED)})
        with pytest.raises(TableChanged, match=r"mark of the table ns\.t has changed.*rolled back"):
            WAY.unmoved(replace(PLACE, main=3), back)

    @pytest.mark.parametrize(
        "found",
        [
            state({}),
            state(BACK),
            state(BACK, cut=True),
        ],
        ids=["without a mark", "back", "back, and cut"],
    )
    def test_with_other_offsets_in_its_mark_is_refused(self, found: TableState) -> None:
        with pytest.raises(TableChanged, match=r"mark of the table ns\.t has changed.*rolled back"):
            WAY.unmoved(PLACE, found)

    @pytest.mark.parametrize(
        ("found", "refusal"),
        [
            (state(to_summary(mark(UP_TO_NINE, epoch=4), {})), Superseded),
            (state(MARKED, refs={"main": 1, "ingest_plant_4": 1}), Superseded),
        ],
        ids=["a newer mark", "a newer branch"],
    )
    def test_of_a_newer_start_ends_this_one(self, found: TableState, refusal: type[NeedsOperator]) -> None:
        with pytest.raises(refusal, match="has taken over"):
            WAY.unmoved(PLACE, found)

    def test_whose_branch_was_dropped_is_tried_again(self) -> None:
        """Or goes with its age: no newer start shows, so nobody has taken over."""
        with pytest.raises(TryAgain, match="another program dropped the branch ingest_plant_3"):
            WAY.unmoved(PLACE, state(MARKED, refs={"main": 1}))


def written(rows: int) -> DataFileReceipt:
    return cast("DataFileReceipt", SimpleNamespace(record_count=rows, size=10, partition=()))


class TestBatch:
    def test_is_reported_by_its_own_commit(self) -> None:
        """Main may be another pipeline's by the time that ours has expired what is old."""
        ours, theirs = (
            Position(TABLE, OURS, main, mark(UP_TO_NINE), {}, known=True, snapshots=main, schema=main)
            for main in (1, 2)
        )
        effects = SimpleNamespace(land=lambda *_: ours, expire=lambda _: theirs)
        opened, stream, reader, watch, reports, refuse, threads = (MagicMock() for _ in range(7))
        opened.held.beyond_in.return_value = {}
        runner = BatchRunner(opened, stream, cast("Any", effects), reader, watch, reports, refuse, threads, lambda: 1)
        landing = Landing(ours, MagicMock())
        identity = batch.BatchIdentity(Range({("t", 0): 5}, UP_TO_NINE), Token(PIPELINE, 1, 3, 0), "")
        receipt = runner._land_files(landing, [written(5)], identity)
        assert (receipt.snapshot, receipt.schema, receipt.rows) == (1, 1, 5)
        assert landing.place is theirs

    def test_with_missing_dead_letters_is_tried_again(self) -> None:
        outcome = Outcome(Tally({("t", 0): {LANDED: 7, "broken_json": 2}}), {}, [], [])
        batch._check_letters([written(1), written(1)], outcome)
        with pytest.raises(TryAgain, match="2 records have a fault, but 1 were written for the dead-letter table"):
            batch._check_letters([written(1)], outcome)


class TestMeasuredTables:
    def test_are_measured_now_and_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked: list[str] = []
        reports = BatchReports("s", MagicMock(), "letters", cast("Any", looked.append))

        def measure(*tables: str) -> None:
            for table in reports.due(tables):
                reports.measure(table)

        for tables in (["t"], ["t", "u"]):
            measure(*tables)
        assert looked == ["t", "u"]
        monkeypatch.setattr(reporting, "MEASURED_EVERY_S", 0.0)
        measure("u")
        assert looked == ["t", "u", "u"]
