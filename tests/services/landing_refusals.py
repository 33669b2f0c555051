"""More cases of `catalog.landing`: what it refuses, and what a refusal leaves; see `landing_cases`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.types import LongType

from catalog import (
    Attempts,
    BranchGone,
    Column,
    Conflict,
    FenceMoved,
    FilesUnfit,
    LayoutMoved,
    OutcomeUnknown,
    TableMissing,
    TableReplaced,
    TableSpec,
    TableState,
    apply,
    fitting_layout,
    land_rows,
    open_branch,
    orphans_of,
    plan,
    set_properties,
)
from catalog.commits import MAIN
from catalog.file_sinks import local_path
from catalog.retries import FEW, MANY
from tests.services.landings import (
    BRANCH,
    LandingBench,
    LandingWriter,
    assert_all_there,
    data_files,
    writer,
)
from tests.services.troubled import Troubled, behind, cut, passed

__all__ = [
    "TestEvolution",
    "TestLayoutIsRequired",
    "TestMainAlone",
    "TestManifests",
    "TestOlderWriter",
    "TestRows",
    "TestWhoFailed",
    "writer",
]

Act = Callable[[LandingBench], object]


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

    @pytest.mark.parametrize("change", [LandingBench.repartition, LandingBench.add_column])
    def test_is_planned_again_if_the_table_has_changed(
        self, bench: LandingBench, writer: LandingWriter, change: Act
    ) -> None:
        """Schema and layout are required as planned, whichever of them the change is about."""
        bench.troubles.commits = [Troubled.after(lambda: change(bench))]
        wanted = TableSpec(bench.name, (*bench.columns, Column("other", "string")))
        state = apply(bench.lake, bench.name, plan(bench.state(), wanted), writer.expected)
        assert bench.troubles.sent == 2
        assert "other" in {each.name for each in state.columns}

    @pytest.mark.parametrize("when", ["before the look", "after the look"])
    def test_of_properties_is_not_done_by_an_older_writer(
        self, bench: LandingBench, writer: LandingWriter, when: str
    ) -> None:
        def replaced() -> object:
            return open_branch(bench.others, bench.name, "ours_2", [BRANCH])

        set_properties(bench.lake, bench.name, {"mine": "1"}, writer.expected)
        if when == "after the look":
            bench.troubles.commits = [Troubled.after(replaced)]
        else:
            replaced()
        with pytest.raises(BranchGone):
            set_properties(bench.lake, bench.name, {"mine": "2"}, writer.expected)
        assert bench.state().properties["mine"] == "1"

    def test_without_a_fence_is_refused_once_main_has_moved(self, bench: LandingBench) -> None:
        """Whoever replaces a writer moves main first. `check` is asked at each look, and ends it."""
        writer = bench.writer_on_main()
        looked: list[int | None] = []

        def check(state: TableState) -> None:
            looked.append(state.main)
            if len(looked) > 1:
                raise ValueError("replaced")

        bench.troubles.commits = [Troubled.after(lambda: bench.append(7))]
        with pytest.raises(ValueError, match="replaced"):
            set_properties(bench.lake, bench.name, {"mine": "1"}, writer.expected, check)
        assert len({*looked}) == 2
        assert "mine" not in bench.state().properties

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
