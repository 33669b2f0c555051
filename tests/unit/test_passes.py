"""Passes over a batch: news is read again, and a table that fails keeps the others from nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from catalog import DataFileReceipt
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline.passes import MOST_PASSES, Outcome, Passes, Ready
from lakehouse_ingest.pipeline.task import Part, Receipt, Work
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

    def told(self, work: Work, *, last: bool) -> Work:
        del last
        return work

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


def test_there_are_only_so_many_passes() -> None:
    """A task that finds news in the last pass breaks its promise, so its records have no outcome."""
    every, tables = [receipts(0), *(receipts(number, [ONE]) for number in range(1, MOST_PASSES))], NoTables()
    for each in every:
        each[0].parts[ONE].news = SeenFields()
    with pytest.raises(TryAgain, match="have an outcome"):
        outcome_of(every, tables)
