"""Passes over a batch: news is read again, and a table that fails keeps the others from nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from catalog import DataFileReceipt
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline.passes import MOST_PASSES, OFTEN, Outcome, Passes, Ready, Tasks
from lakehouse_ingest.pipeline.task import Part, Receipt, RouteWork, Work
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.stages.accounting import Count
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.routing import Route, Way
from lakehouse_ingest.stages.tally import FILTERED, LANDED

ONE, OTHER = Route(0, type="one"), Route(0, type="other")
SHARES = (Share("t", 0, 0, 10), Share("t", 1, 0, 10))
AWAY = TryAgain("the store is away")


@dataclass
class NoTables:
    """Stands for tables of which nothing has to be known."""

    failures: Sequence[BaseException] = ()
    notes: Sequence[str] = ()
    made: list[set[Route]] = field(default_factory=list)
    known: Sequence[Route] = ()

    def told(self, work: Work, *, last: bool) -> Work:
        del last
        return replace(work, routes=dict.fromkeys(self.known, cast("RouteWork", None))) if self.known else work

    def make(self, news: Mapping[Route, SeenFields]) -> None:
        self.made.append({*news})


def part_of(share: Share, name: str) -> Part:
    """Five records that are in a file."""
    count = Count(share, received=5, rows=5)
    count.add(LANDED, 5)
    file = DataFileReceipt(name, (), 0, 5, 1, {}, {}, {}, {}, {}, {}, (), None)
    return Part({share: count}, [file])


def receipts(number: int, ways: Sequence[Way] | None = None) -> list[Receipt]:
    """What two tasks did in a pass: ten records each, five for each table, of which only some `ways` are read."""
    found = []
    for task, share in enumerate(SHARES):
        read = [way for way in (ONE, OTHER) if ways is None or way in ways]
        parts: dict[Way, Part] = {way: part_of(share, f"{number} {task} {way}") for way in read}
        received = Count(share, received=10, elsewhere=10 - 5 * len(read))
        found.append(Receipt(task, {share: received}, parts, {"read": 0.5}))
    return found


def outcome_of(passes: Sequence[list[Receipt]], tables: NoTables) -> Outcome:
    run = iter(passes)
    work = Work("p", 1, 0, cast("Any", None), cast("Any", None), {}, None)
    return Passes([[share] for share in SHARES], lambda *_: next(run), cast("Ready", tables)).outcome(work)


class TestPassWithoutNews:
    def test_is_the_only_one(self) -> None:
        tables = NoTables()
        found = outcome_of([receipts(0)], tables)
        assert (found.tally.total(LANDED), len(found.files(ONE)), len(found.files(OTHER))) == (20, 2, 2)
        assert (found.failures, tables.made, found.seconds) == ([], [], {"read": 1.0})


class TestNews:
    def test_of_one_task_is_read_again_by_all(self) -> None:
        first, second, tables = receipts(0), receipts(1, [OTHER]), NoTables()
        first[1].parts[OTHER].news = SeenFields()
        found = outcome_of([first, second], tables)
        assert tables.made == [{OTHER}]
        assert {file.path[0] for file in found.files(ONE)} == {"0"}
        assert {file.path[0] for file in found.files(OTHER)} == {"1"}
        assert found.tally.total(LANDED) == found.tally.received == 20


def news_of(records: int) -> SeenFields:
    seen = SeenFields()
    for _ in range(records):
        seen.add({"new": 1})
    return seen


class TestSample:
    """Of two tables, one exists. `SAMPLES` are looked at before the batch is read."""

    SAMPLES: Tasks = ([Share("t", 0, 8, 9)], [Share("t", 1, 8, 9)])

    def outcome(self, tables: NoTables, *looked_at: Mapping[Way, int]) -> tuple[Outcome, list[tuple[Work, Tasks]]]:
        asked: list[tuple[Work, Tasks]] = []

        def run(work: Work, tasks: Tasks) -> Sequence[Receipt]:
            asked.append((work, tasks))
            if not work.looks:
                return receipts(0)
            parts = [{way: Part(news=news_of(count)) for way, count in each.items()} for each in looked_at]
            return [Receipt(number, parts=each) for number, each in enumerate(parts)]

        work = Work("p", 1, 0, cast("Any", None), cast("Any", None), {}, None, one_in=5)
        tasks = [[share] for share in SHARES]
        return Passes(tasks, run, cast("Ready", tables), self.SAMPLES).outcome(work), asked

    def test_with_news_makes_the_tables_ready_before_the_first_pass(self) -> None:
        tables = NoTables(known=[ONE])
        found, asked = self.outcome(tables, {ONE: OFTEN - 1}, {ONE: 1})
        assert tables.made == [{ONE}]
        assert [(work.looks, work.only, work.one_in) for work, _ in asked] == [
            (True, frozenset([ONE]), 0),
            (False, None, 5),
        ]
        assert [tasks for _, tasks in asked] == [self.SAMPLES, [[share] for share in SHARES]]
        assert found.tally.total(LANDED) == found.tally.received == 20
        assert (len(found.files(ONE)), len(found.files(OTHER))) == (2, 2)

    def test_with_rare_news_leaves_it_to_the_pass(self) -> None:
        tables = NoTables(known=[ONE])
        _, asked = self.outcome(tables, {ONE: OFTEN - 1}, {})
        assert (tables.made, len(asked)) == ([], 2)

    def test_is_not_looked_at_without_a_table(self) -> None:
        _, asked = self.outcome(NoTables())
        assert [work.looks for work, _ in asked] == [False]

    def test_that_cannot_be_read_ends_the_batch(self) -> None:
        def run(work: Work, tasks: Tasks) -> Sequence[Receipt]:
            del work, tasks
            return [Receipt(0, error=AWAY)]

        work = Work("p", 1, 0, cast("Any", None), cast("Any", None), {}, None)
        tables = cast("Ready", NoTables(known=[ONE]))
        with pytest.raises(TryAgain, match="the store is away"):
            Passes([[share] for share in SHARES], run, tables, self.SAMPLES).outcome(work)


class TestTableThatCannotBeWritten:
    def test_keeps_the_others_from_nothing(self) -> None:
        """Nothing of it is committed, not even what one of the tasks could write; the other's counts are checked."""
        first = receipts(0)
        first[0].parts[ONE].failure, first[0].parts[ONE].files = AWAY, ()
        found = outcome_of([first], NoTables())
        assert found.failures == [AWAY]
        assert (found.files(ONE), len(found.files(OTHER))) == ([], 2)
        assert (found.tally.total(LANDED), found.tally.total(FILTERED)) == (10, 10)

    def test_is_not_taken_for_news(self) -> None:
        first, second, tables = receipts(0), receipts(1, [OTHER]), NoTables()
        first[0].parts[ONE].failure, first[0].parts[ONE].files = AWAY, ()
        first[1].parts[ONE].news, first[1].parts[OTHER].news = SeenFields(), SeenFields()
        found = outcome_of([first, second], tables)
        assert (tables.made, found.failures) == ([{OTHER}], [AWAY])
        assert {file.path[0] for file in found.files(OTHER)} == {"1"}

    def test_hides_no_loss_of_another(self) -> None:
        first = receipts(0)
        first[0].parts[ONE].failure, first[0].parts[ONE].files = AWAY, ()
        first[1].parts[OTHER].files = ()
        with pytest.raises(TryAgain, match="counted 5 rows and wrote 0"):
            outcome_of([first], NoTables())


class TestTaskThatFailed:
    def test_ends_the_batch(self) -> None:
        first = receipts(0)
        first[1].error = AWAY
        with pytest.raises(TryAgain, match="the store is away"):
            outcome_of([first], NoTables())


class TestPasses:
    def test_are_bounded_in_number(self) -> None:
        """A task that finds news in the last pass breaks its promise, so its records have no outcome."""
        every, tables = [receipts(0), *(receipts(number, [ONE]) for number in range(1, MOST_PASSES))], NoTables()
        for each in every:
            each[0].parts[ONE].news = SeenFields()
        with pytest.raises(TryAgain, match="have an outcome"):
            outcome_of(every, tables)
