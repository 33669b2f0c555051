"""What `catalog.landing` promises, for any catalog: the module that imports these classes says which, as `bench`.

The classes are named after the rules of the design that they prove.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.table import Table
from pyiceberg.types import LongType

from catalog import (
    Attempts,
    BranchGone,
    Column,
    Conflict,
    FenceMoved,
    FilesUnfit,
    FormatUnwritable,
    LayoutMoved,
    OutcomeUnknown,
    TableMissing,
    TableReplaced,
    TableSpec,
    TableState,
    apply,
    fitting_layout,
    land_rows,
    move_fence_up,
    open_branch,
    orphans_of,
    plan,
)
from catalog.commits import LONGEST_AGE_MS, MAIN
from catalog.file_sinks import local_path
from catalog.retries import FEW, MANY
from tests.services.landings import BRANCH, TOKEN, LandingBench, LandingWriter
from tests.services.troubled import Troubled, behind, cut, passed


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


@pytest.fixture
def writer(bench: LandingBench) -> LandingWriter:
    return bench.writer()


Act = Callable[[LandingBench], object]


class TestLanding:
    def test_adds_the_files_with_one_request(self, bench: LandingBench, writer: LandingWriter) -> None:
        before = bench.state()
        state = writer.land(1, 2, decide=lambda _: {TOKEN: "one"})
        assert bench.troubles.sent == 1
        assert bench.ids() == [0, 1, 2]
        newest, *older = state.ancestors()
        assert [each.id for each in older] == [each.id for each in before.ancestors()]
        assert (newest.summary[TOKEN], newest.summary["added-records"]) == ("one", "2")

    def test_without_files_moves_the_marks_only(self, bench: LandingBench, writer: LandingWriter) -> None:
        state = writer.land(decide=lambda _: {TOKEN: "none"})
        assert next(state.ancestors()).summary[TOKEN] == "none"
        assert bench.ids() == [0]

    def test_goes_on_from_one_batch_to_the_next(self, bench: LandingBench, writer: LandingWriter) -> None:
        for number in range(1, 5):
            writer.land(number)
        assert bench.ids() == [0, 1, 2, 3, 4]
        assert bench.troubles.sent == 4

    @pytest.mark.parametrize("act", [lambda bench: bench.append(7), LandingBench.compact, LandingBench.add_twins])
    def test_puts_the_same_files_upon_the_head_that_others_made(
        self, bench: LandingBench, writer: LandingWriter, act: Act
    ) -> None:
        """Between the look and the commit others append, or replace all files; the marks are asked for on each head."""
        heads: list[int | None] = []
        told: list[Exception] = []

        def decide(state: TableState) -> dict[str, str]:
            heads.append(state.main)
            return {TOKEN: str(state.main)}

        files, attempts = bench.files(1), Attempts()
        bench.troubles.commits = [Troubled.after(lambda: act(bench)), Troubled.after(lambda: act(bench))]
        state = writer.land(
            files=files, attempts=attempts, decide=decide, refused=lambda _, failure: told.append(failure)
        )
        newest = next(state.ancestors())
        assert (len(heads), len(set(heads)), newest.summary[TOKEN]) == (3, 3, str(newest.parent))
        assert [type(each) for each in told] == [Conflict, Conflict]
        assert bench.ids().count(1) == 1
        assert data_files(attempts) == {files[0][0].path}
        assert files[0][0].path in live(bench)

    def test_ends_with_what_decide_raises(self, bench: LandingBench, writer: LandingWriter) -> None:
        def decide(_: TableState) -> dict[str, str]:
            raise ValueError("not any more")

        with pytest.raises(ValueError, match="not any more"):
            writer.land(1, decide=decide)
        assert bench.troubles.sent == 0

    @pytest.mark.parametrize("merged", [True, False])
    def test_merges_manifests_unless_the_table_forbids_it(self, bench: LandingBench, *, merged: bool) -> None:
        """A table gets a commit every few seconds for years, and each of them lists all manifests."""
        bench.repartition()
        writer = bench.writer()
        with bench.table().transaction() as change:
            change.set_properties({"commit.manifest.min-count-to-merge": "3"})
            if not merged:
                change.set_properties({"commit.manifest-merge.enabled": "false"})
        for number in range(1, 5):
            writer.land(number)
        table = bench.table()
        snapshot = table.current_snapshot()
        assert snapshot
        assert (len(snapshot.manifests(table.io)) < 4) is merged
        assert bench.ids() == [0, 1, 2, 3, 4]
        assert bench.table().scan(row_filter="site = 'site 3'").to_arrow()["id"].to_pylist() == [3]


class TestFenceMovesWithMain:
    """Rule 1."""

    def test_both_are_at_the_new_snapshot(self, bench: LandingBench, writer: LandingWriter) -> None:
        for number in (1, 2):
            bench.append(9)
            attempts = Attempts()
            writer.land(number, attempts=attempts)
            assert bench.refs() == {MAIN: attempts.landed, BRANCH: attempts.landed}

    def test_fence_never_expires_by_age(self, bench: LandingBench, writer: LandingWriter) -> None:
        writer.land(1)
        refs = bench.table().metadata.refs
        assert (refs[BRANCH].max_ref_age_ms, refs[MAIN].max_ref_age_ms) == (LONGEST_AGE_MS, None)

    def test_late_duplicate_after_a_roll_back_is_refused(self, bench: LandingBench, writer: LandingWriter) -> None:
        """Main is where the request wants it again; the fence is not."""
        before = bench.state().main
        bench.troubles.commits = [bench.troubles.held]
        writer.land(1)
        bench.roll_back(before)
        assert bench.troubles.arrive() == [False]
        assert bench.ids() == [0]
        assert bench.refs()[MAIN] == before

    def test_fence_of_an_idle_table_is_moved_up(self, bench: LandingBench, writer: LandingWriter) -> None:
        writer.land(1)
        bench.compact()
        sent = bench.troubles.sent
        for _ in range(2):
            writer.follow(move_fence_up(bench.lake, bench.name, writer.expected))
        assert bench.troubles.sent == sent + 1
        assert bench.refs()[BRANCH] == bench.state().main
        assert bench.table().metadata.refs[BRANCH].max_ref_age_ms == LONGEST_AGE_MS
        writer.land(2)
        assert bench.ids() == [0, 1, 2]

    @pytest.mark.parametrize("trouble", [Troubled.answer_lost, Troubled.request_lost, Troubled.repeated])
    def test_fence_is_moved_up_once(self, bench: LandingBench, writer: LandingWriter, trouble: Any) -> None:
        bench.append(7)
        bench.troubles.commits = [trouble]
        writer.follow(move_fence_up(bench.lake, bench.name, writer.expected))
        assert bench.refs()[BRANCH] == bench.state().main
        writer.land(1)
        assert bench.ids() == [0, 1, 7]

    def test_fence_that_was_dropped_is_not_moved_up(self, bench: LandingBench, writer: LandingWriter) -> None:
        open_branch(bench.others, bench.name, "ours_2", [BRANCH])
        bench.append(7)
        with pytest.raises(BranchGone):
            move_fence_up(bench.lake, bench.name, writer.expected)
        assert BRANCH not in bench.refs()


class TestDidItLand:
    """Rule 2: a commit settles it, not a read."""

    @pytest.mark.parametrize(
        "trouble", [Troubled.answer_lost, Troubled.request_lost, Troubled.repeated, Troubled.refused]
    )
    @pytest.mark.parametrize("times", [1, 3])
    def test_each_batch_is_there_once(
        self, bench: LandingBench, writer: LandingWriter, trouble: Any, times: int
    ) -> None:
        """Answers get lost, requests get lost, a proxy repeats a request or answers with another one's refusal."""
        bench.troubles.commits = [trouble] * times
        attempts = Attempts()
        state = writer.land(1, attempts=attempts)
        took_effect = trouble in (Troubled.answer_lost, Troubled.repeated)
        assert bench.troubles.sent == len(attempts.tries) == (1 if took_effect else times + 1)
        assert bench.settled == ([bench.name] if took_effect else [])
        assert state.refs[BRANCH] == attempts.landed == attempts.tries[-1].snapshot
        bench.troubles.commits = []
        writer.land(2)
        assert bench.ids() == [0, 1, 2]

    @pytest.mark.parametrize("version", [1, 2])
    def test_request_that_arrives_late_is_refused(self, bench: LandingBench, version: int) -> None:
        if version not in bench.formats:
            pytest.skip("the catalog makes no such table")
        bench.others.pyiceberg.drop_table(bench.name)
        bench.format_version = version
        bench.create()
        writer = bench.writer()
        bench.troubles.commits = [bench.troubles.held, bench.troubles.held]
        attempts = Attempts()
        writer.land(1, attempts=attempts)
        assert len(attempts.tries) == 3
        assert bench.troubles.arrive() == [False, False]
        assert bench.ids() == [0, 1]

    def test_request_that_arrives_before_the_next_one_wins(self, bench: LandingBench, writer: LandingWriter) -> None:
        """The load showed that it had not: it came between that load and the next request."""
        bench.troubles.commits = [bench.troubles.held, Troubled.after(bench.troubles.arrive)]
        attempts = Attempts()
        state = writer.land(1, attempts=attempts)
        assert attempts.landed == attempts.tries[0].snapshot == state.main
        assert len(attempts.tries) == 2
        assert bench.ids() == [0, 1]

    def test_load_of_a_replica_that_is_behind_doubles_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        """The answer was lost, and the next loads do not show what it had said."""
        old = bench.table()
        bench.troubles.commits = [Troubled.answer_lost]
        bench.troubles.loads = [passed, behind(old), behind(old)]
        attempts = Attempts()
        writer.land(1, attempts=attempts)
        assert len(attempts.tries) == 3
        assert attempts.landed == attempts.tries[0].snapshot
        assert bench.ids() == [0, 1]

    def test_replica_behind_our_last_commit_is_asked_again(self, bench: LandingBench, writer: LandingWriter) -> None:
        """Its table does not have the marks of that commit, so nobody is to decide anything upon it."""
        before = bench.table()
        writer.land(1)
        bench.troubles.loads = [behind(before)] * (FEW - 1)
        looked: list[int | None] = []

        def decide(state: TableState) -> dict[str, str]:
            looked.append(state.main)
            return {}

        head = bench.state().main
        writer.land(2, decide=decide)
        assert looked == [head]
        assert bench.ids() == [0, 1, 2]

    def test_history_that_was_cut_meanwhile_does_not_hide_it(self, bench: LandingBench, writer: LandingWriter) -> None:
        """The answer was lost. Others replaced all files and expired what they could: only the fence remembers."""

        def cut_meanwhile(send: Any) -> Any:
            send()
            bench.compact()
            bench.expire()
            raise requests.ReadTimeout("no answer")

        bench.troubles.commits = [cut_meanwhile]
        attempts = Attempts()
        state = writer.land(1, attempts=attempts)
        assert (len(attempts.tries), attempts.landed) == (1, state.refs[BRANCH])
        assert bench.ids() == [0, 1]

    def test_roll_back_after_a_lost_answer_is_not_taken_for_a_refusal(
        self, bench: LandingBench, writer: LandingWriter
    ) -> None:
        """It took effect, and others took it back: to commit it again is a decision for whoever sees main."""
        before = bench.state().main

        def rolled_back_meanwhile(send: Any) -> Any:
            send()
            bench.roll_back(before)
            raise requests.ReadTimeout("no answer")

        bench.troubles.commits = [rolled_back_meanwhile]
        attempts = Attempts()
        state = writer.land(1, attempts=attempts)
        assert (state.main, state.refs[BRANCH]) == (before, attempts.landed)

    def test_tries_are_remembered_until_the_batch_is_done(self, bench: LandingBench, writer: LandingWriter) -> None:
        """A request is under way while others change the table, and arrives after they have taken that back."""
        attempts, layout = Attempts(), bench.files()[1]
        bench.troubles.commits = [bench.troubles.held, Troubled.after(bench.add_column)]
        with pytest.raises(LayoutMoved):
            writer.land(1, attempts=attempts)
        with bench.table().update_schema() as update:
            update.delete_column("more")
        assert bench.files()[1] == layout  # the same schema has the same number
        written_again = bench.files(1)
        assert bench.troubles.arrive() == [True]
        writer.land(files=written_again, attempts=attempts)
        assert attempts.landed == attempts.tries[0].snapshot
        assert len(attempts.tries) == 2
        assert bench.ids() == [0, 1]

    def test_tries_of_one_batch_require_one_fence(self, bench: LandingBench, writer: LandingWriter) -> None:
        attempts = Attempts()
        writer.land(1, attempts=attempts)
        with pytest.raises(ValueError, match="all require the same fence"):
            writer.land(1, attempts=attempts)
        assert bench.ids() == [0, 1]

    def test_outcome_stays_unknown_if_no_answer_ever_comes(self, bench: LandingBench, writer: LandingWriter) -> None:
        bench.troubles.commits = [Troubled.request_lost] * MANY
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            writer.land(1)
        assert bench.ids() == [0]


class TestWhoFailed:
    """Rule 3: deletes nothing."""

    @pytest.mark.parametrize("trouble", [Troubled.refused, Troubled.request_lost, Troubled.answer_lost])
    def test_keeps_every_file(self, bench: LandingBench, writer: LandingWriter, trouble: Any) -> None:
        attempts = Attempts()
        bench.troubles.commits = [trouble] * 2
        writer.land(1, attempts=attempts)
        assert_all_there(bench, attempts)

    def test_keeps_every_file_if_it_was_replaced(self, bench: LandingBench, writer: LandingWriter) -> None:
        attempts = Attempts()
        bench.troubles.commits = [
            bench.troubles.held,
            Troubled.after(lambda: open_branch(bench.others, bench.name, "ours_2", [BRANCH])),
        ]
        with pytest.raises(BranchGone):
            writer.land(1, attempts=attempts)
        assert len(attempts.tries) == 2
        assert_all_there(bench, attempts)
        assert orphans_of(attempts, bench.state()) == frozenset()

    def test_has_orphans_only_once_another_try_took_effect(self, bench: LandingBench, writer: LandingWriter) -> None:
        attempts, files = Attempts(), bench.files(1)
        before = bench.state()
        bench.troubles.commits = [Troubled.after(bench.add_column)]
        with pytest.raises(LayoutMoved):
            writer.land(files=files, attempts=attempts)
        assert orphans_of(attempts, bench.state()) == frozenset()  # the request may still arrive
        writer.land(1, attempts=attempts)
        assert orphans_of(attempts, before) == frozenset()  # a load that is older than that
        first, second = attempts.tries
        orphans = orphans_of(attempts, bench.state())
        assert orphans == first.paths
        assert files[0][0].path in orphans
        assert not orphans & second.paths
        assert attempts.landed == second.snapshot
        open_branch(bench.others, bench.name, "ours_2", [BRANCH])
        assert orphans_of(attempts, bench.state()) == frozenset()  # replaced, it deletes nothing

    def test_has_no_orphans_among_the_files_that_landed(self, bench: LandingBench, writer: LandingWriter) -> None:
        attempts, files = Attempts(), bench.files(1)
        bench.troubles.commits = [Troubled.after(bench.compact)]
        writer.land(files=files, attempts=attempts)
        first, second = attempts.tries
        assert first.paths & second.paths == {files[0][0].path}
        assert orphans_of(attempts, bench.state()) == first.paths - {files[0][0].path}

    def test_has_no_orphans_while_a_snapshot_has_them(self, bench: LandingBench, writer: LandingWriter) -> None:
        attempts = Attempts()
        writer.land(1, attempts=attempts)
        landed = attempts.tries[0]
        # As if another try were in the table after all, against all rules.
        attempts.tries.append(landed.__class__(bench.state().main or 0, None, frozenset({"kept"})))
        attempts.landed = None
        assert orphans_of(attempts, bench.state()) == frozenset()
        attempts.landed = 5
        assert orphans_of(attempts, bench.state()) == frozenset()

    def test_has_no_orphans_while_nobody_knows_what_landed(self, bench: LandingBench, writer: LandingWriter) -> None:
        """The fence has moved, and others have expired the snapshot: that does not mean that it never was."""
        attempts = Attempts()
        writer.land(1, attempts=attempts)
        attempts.landed = None
        assert orphans_of(attempts, replace(bench.state(), snapshots={})) == frozenset()

    def test_has_no_orphans_without_a_fence(self, bench: LandingBench) -> None:
        attempts = Attempts()
        bench.troubles.commits = [Troubled.after(bench.compact)]
        bench.writer_on_main().land(1, attempts=attempts)
        assert len(attempts.tries) == 2
        assert orphans_of(attempts, bench.state()) == frozenset()


class TestLayoutIsRequired:
    """Rule 6."""

    @pytest.mark.parametrize("when", ["before the look", "after the look"])
    @pytest.mark.parametrize(
        ("change", "fits"),
        [
            (LandingBench.add_column, True),
            (LandingBench.recreate_column, False),
            (LandingBench.repartition, False),
            (LandingBench.rename_column, True),
            (LandingBench.drop_column, False),
        ],
    )
    def test_files_of_another_layout_are_refused(
        self, bench: LandingBench, writer: LandingWriter, change: Act, when: str, *, fits: bool
    ) -> None:
        """They go upon the changed table as they are if they fit. Otherwise values would vanish without an error."""
        files, layout = bench.files(1)
        attempts = Attempts()
        if when == "after the look":
            bench.troubles.commits = [Troubled.after(lambda: change(bench))]
        else:
            change(bench)
        with pytest.raises(LayoutMoved):
            writer.land(files=(files, layout), attempts=attempts)
        assert bench.ids() == [0]
        state = bench.state()
        if not fits:
            with pytest.raises(FilesUnfit):
                fitting_layout(bench.lake, bench.name, state.uuid, layout)
            writer.land(1, attempts=attempts)
        else:
            writer.land(files=(files, fitting_layout(bench.lake, bench.name, state.uuid, layout)), attempts=attempts)
        assert bench.ids() == [0, 1]

    def test_wider_columns_take_files_of_narrower_ones(self, bench: LandingBench) -> None:
        bench.others.pyiceberg.drop_table(bench.name)
        bench.columns = (Column("id", "int"), Column("site", "string"))
        bench.create()
        files, layout = bench.files(1)
        with bench.table().update_schema() as update:
            update.update_column("id", LongType())
        writer = bench.writer()
        found = fitting_layout(bench.lake, bench.name, bench.state().uuid, layout)
        assert found != layout
        writer.land(files=(files, found))
        assert bench.ids() == [0, 1]

    def test_replica_that_does_not_know_the_schema_is_asked_again(self, bench: LandingBench) -> None:
        writer, before = bench.writer(), bench.table()
        bench.add_column()
        bench.troubles.loads = [behind(before)] * (FEW - 1)
        writer.land(1)
        assert bench.ids() == [0, 1]

    def test_another_table_has_no_layout_that_fits(self, bench: LandingBench) -> None:
        _, layout = bench.files()
        uuid = bench.state().uuid
        bench.recreate()
        with pytest.raises(TableReplaced):
            fitting_layout(bench.lake, bench.name, uuid, layout)


class TestOlderWriter:
    def test_that_wakes_up_adds_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        files = bench.files(1)
        newer = bench.writer("ours_2", [BRANCH])
        newer.land(2)
        with pytest.raises(BranchGone):
            writer.land(files=files)
        newer.land(3)
        assert bench.troubles.sent == 2
        assert bench.ids() == [0, 2, 3]

    def test_whose_fence_is_dropped_between_look_and_commit_adds_nothing(
        self, bench: LandingBench, writer: LandingWriter
    ) -> None:
        bench.troubles.commits = [Troubled.after(lambda: open_branch(bench.others, bench.name, "ours_2", [BRANCH]))]
        with pytest.raises(BranchGone):
            writer.land(1)
        assert bench.ids() == [0]

    def test_with_a_replica_of_before_adds_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        """Each load shows the old fence in its place; the catalog refuses each request."""
        writer.land(1)
        old = bench.table()
        newer = bench.writer("ours_2", [BRANCH])
        newer.land(2)
        bench.troubles.loads = [behind(old)] * MANY
        with pytest.raises(Conflict):
            writer.land(3)
        assert bench.ids() == [0, 1, 2]

    def test_with_a_request_under_way_adds_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        bench.troubles.commits = [bench.troubles.held, Troubled.refused, *[Troubled.request_lost] * (MANY - 2)]
        with pytest.raises(OutcomeUnknown):
            writer.land(1)
        newer = bench.writer("ours_2", [BRANCH])
        assert bench.troubles.arrive() == [False]
        newer.land(1)
        assert bench.ids() == [0, 1]

    def test_whose_fence_is_moved_by_others_adds_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        bench.append(7)
        bench.move_branch(bench.state().main or 0)
        with pytest.raises(FenceMoved, match="was left at"):
            writer.land(1)
        assert bench.ids() == [0, 7]

    def test_of_a_table_that_was_recreated_adds_nothing(self, bench: LandingBench, writer: LandingWriter) -> None:
        files = bench.files(1)
        bench.recreate()
        with pytest.raises(TableReplaced, match="dropped and recreated"):
            writer.land(files=files)
        assert bench.ids() == [0]

    def test_of_a_table_that_is_recreated_between_look_and_commit_adds_nothing(
        self, bench: LandingBench, writer: LandingWriter
    ) -> None:
        bench.troubles.commits = [Troubled.after(bench.recreate)]
        with pytest.raises(TableReplaced):
            writer.land(1)
        assert bench.ids() == [0]

    def test_of_a_table_that_was_dropped_says_so(self, bench: LandingBench, writer: LandingWriter) -> None:
        files = bench.files(1)
        bench.others.pyiceberg.drop_table(bench.name)
        with pytest.raises(TableMissing):
            writer.land(files=files)
        bench.create()


class TestEvolution:
    """Rule 16: fenced like data."""

    def added(self, bench: LandingBench, writer: LandingWriter) -> TableState:
        wanted = TableSpec(bench.name, (*bench.columns, Column("more", "string")))
        return apply(bench.lake, bench.name, plan(bench.state(), wanted), writer.expected)

    def test_is_done_by_the_writer_with_the_fence(self, bench: LandingBench, writer: LandingWriter) -> None:
        bench.troubles.commits = [Troubled.answer_lost, Troubled.request_lost]
        state = self.added(bench, writer)
        assert [each.name for each in state.columns] == ["id", "site", "more"]
        writer.land(1)
        assert bench.ids() == [0, 1]

    @pytest.mark.parametrize("when", ["before the look", "after the look"])
    def test_is_not_done_by_an_older_writer(self, bench: LandingBench, writer: LandingWriter, when: str) -> None:
        def replaced() -> object:
            return open_branch(bench.others, bench.name, "ours_2", [BRANCH])

        if when == "after the look":
            bench.troubles.commits = [Troubled.after(replaced)]
        else:
            replaced()
        with pytest.raises(BranchGone):
            self.added(bench, writer)
        assert [each.name for each in bench.state().columns] == ["id", "site"]

    def test_is_not_done_to_another_table(self, bench: LandingBench, writer: LandingWriter) -> None:
        bench.recreate()
        with pytest.raises(TableReplaced):
            self.added(bench, writer)


class TestManifests:
    """Rule 16: on local files all is synced before the commit."""

    def test_are_on_disk_before_the_request(
        self, bench: LandingBench, writer: LandingWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []

        def fsync(number: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))

        def sent(send: Any) -> Any:
            monkeypatch.undo()
            assert {Path(path).suffix for path in synced} == {".avro", ""}
            return send()

        files, attempts = bench.files(1), Attempts()
        monkeypatch.setattr("os.fsync", fsync)
        bench.troubles.commits = [sent]
        writer.land(files=files, attempts=attempts)
        if all(local_path(path) is None for path in attempts.tries[0].paths):
            pytest.skip("the warehouse is not on this machine")
        manifests = {str(local_path(path)) for path in attempts.tries[0].paths if path.endswith(".avro")}
        assert {*synced} == manifests | {str(Path(each).parent) for each in manifests}


class TestRows:
    def append(self, bench: LandingBench, writer: LandingWriter, number: int, attempts: Attempts) -> None:
        rows = [{"id": number, "site": "log"}]
        writer.follow(land_rows(bench.lake, bench.name, rows, writer.expected, lambda _: {}, attempts))

    @pytest.mark.parametrize(
        "trouble", [Troubled.answer_lost, Troubled.request_lost, Troubled.repeated, Troubled.refused]
    )
    def test_are_written_once_and_are_there_once(
        self, bench: LandingBench, writer: LandingWriter, trouble: Any
    ) -> None:
        bench.troubles.commits = [trouble] * 2
        attempts = Attempts()
        self.append(bench, writer, 1, attempts)
        bench.troubles.commits = []
        assert len(data_files(attempts)) == 1
        self.append(bench, writer, 2, Attempts())
        assert bench.ids() == [0, 1, 2]

    @pytest.mark.parametrize("change", [LandingBench.recreate_column, LandingBench.repartition])
    def test_are_written_again_for_another_layout(
        self, bench: LandingBench, writer: LandingWriter, change: Act
    ) -> None:
        bench.troubles.commits = [Troubled.after(lambda: change(bench))]
        attempts = Attempts()
        self.append(bench, writer, 1, attempts)
        assert len(data_files(attempts)) == 2
        assert bench.table().scan(row_filter="id = 1").to_arrow()["site"].to_pylist() == ["log"]

    def test_are_needed(self, bench: LandingBench, writer: LandingWriter) -> None:
        with pytest.raises(ValueError, match="no rows to append"):
            land_rows(bench.lake, bench.name, [], writer.expected, lambda _: {}, Attempts())


class TestMainAlone:
    """Where the catalog allows no other ref: as `direct_commits`, with the layout required as well."""

    @pytest.mark.parametrize(
        "trouble", [Troubled.answer_lost, Troubled.request_lost, Troubled.repeated, Troubled.refused]
    )
    def test_takes_each_batch_once(self, bench: LandingBench, trouble: Any) -> None:
        writer = bench.writer_on_main()
        for number in (1, 2):
            bench.troubles.commits = [trouble, Troubled.after(lambda: bench.append(9))]
            writer.land(number)
        assert [each for each in bench.ids() if each != 9] == [0, 1, 2]
        assert [*bench.refs()] == [MAIN]

    def test_requires_the_layout(self, bench: LandingBench) -> None:
        bench.troubles.commits = [Troubled.after(bench.recreate_column)]
        with pytest.raises(LayoutMoved):
            bench.writer_on_main().land(1)
        assert bench.ids() == [0]

    def test_load_of_a_replica_that_is_behind_doubles_nothing(self, bench: LandingBench) -> None:
        old = bench.table()
        bench.troubles.commits = [Troubled.answer_lost]
        bench.troubles.loads = [passed, behind(old)]
        bench.writer_on_main().land(1)
        assert bench.ids() == [0, 1]

    def test_leaves_the_outcome_unknown_if_history_was_cut(self, bench: LandingBench) -> None:
        def cut_meanwhile(send: Any) -> Any:
            send()
            for _ in range(2):
                bench.compact()
            bench.expire()
            raise requests.ReadTimeout("no answer")

        bench.troubles.commits, bench.troubles.loads = [cut_meanwhile], [passed, cut]
        with pytest.raises(OutcomeUnknown, match="expired that part"):
            bench.writer_on_main().land(1)


class TestFormatThree:
    def test_is_refused_by_name(self, bench: LandingBench, writer: LandingWriter) -> None:
        """pyiceberg writes no manifests of version 3: an engine has to."""
        table = bench.table()
        newer = Table(
            table.name(),
            table.metadata.model_copy(update={"format_version": 3}),
            table.metadata_location,
            table.io,
            table.catalog,
        )
        files, attempts = bench.files(1), Attempts()
        bench.troubles.loads = [behind(newer)]
        with pytest.raises(FormatUnwritable, match="format version 3"):
            writer.land(files=files, attempts=attempts)
        assert (bench.troubles.sent, attempts.tries) == (0, [])


def data_files(attempts: Attempts) -> set[str]:
    return {path for each in attempts.tries for path in each.paths if path.endswith(".parquet")}


def live(bench: LandingBench) -> set[str]:
    return {task.file.file_path for task in bench.table().scan().plan_files()}


def assert_all_there(bench: LandingBench, attempts: Attempts) -> None:
    io = bench.table().io
    assert attempts.tries
    missing = {path for each in attempts.tries for path in each.paths if not io.new_input(path).exists()}
    assert missing == set()
