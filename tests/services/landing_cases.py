"""What `catalog.landing` promises, for any catalog: the module that imports these classes says which, as `bench`.

The classes are named after the rules of the design that they prove.
"""

from collections.abc import Callable
from typing import Any

import pytest
import requests

from catalog import (
    Attempts,
    BranchGone,
    Conflict,
    LayoutMoved,
    OutcomeUnknown,
    TableState,
    move_fence_up,
    open_branch,
)
from catalog.commits import LONGEST_AGE_MS, MAIN
from catalog.retries import FEW, MANY
from tests.services.landings import (
    BRANCH,
    TOKEN,
    LandingBench,
    LandingWriter,
    data_files,
    live,
    writer,
)
from tests.services.troubled import Troubled, behind, passed

__all__ = ["TestDidItLand", "TestFenceMovesWithMain", "TestLanding", "writer"]

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

    def test_does_not_undo_a_roll_back(self, bench: LandingBench, writer: LandingWriter) -> None:
        """Others take main back between the look and the commit. No number of a snapshot is taken by that."""
        before = bench.state().main
        writer.land(1)
        bench.troubles.commits = [Troubled.after(lambda: bench.roll_back(before))]
        writer.land(2)
        assert bench.ids() == [0, 2]

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

    @pytest.mark.parametrize("version", [1, 2, 3])
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
