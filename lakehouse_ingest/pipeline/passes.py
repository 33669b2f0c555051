"""Run the tasks of a batch, in one pass if the records bring nothing new.

A pass that finds news is followed by another one, which reads only the routes with news, in all tasks. Before it, the
driver creates and changes tables. The last pass takes nothing as news: what has no column then is rescued or
dead-lettered. So a sender can't keep a batch going.

Before the first pass over a large batch, tasks look at samples of its records. New fields mostly stay, so they are in
the samples, and then the first pass already has columns for them. News that is rare waits for the pass, which sees
more of its values.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from catalog import DataFileReceipt
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.pipeline.task import Part, Receipt, RouteWork, Work
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.stages import routing
from lakehouse_ingest.stages.accounting import Count, TaskReceipt, tiles
from lakehouse_ingest.stages.records import Fault, Share
from lakehouse_ingest.stages.routing import Route, Way
from lakehouse_ingest.stages.tally import FILTERED, Tally
from lakehouse_ingest.tables.stream_tables import Refusal, StreamTables
from lakehouse_ingest.tables.table_keeper import TableKeeper

MOST_PASSES = 4
OFTEN = 100  # records with news of a table; fewer say too little about the types of its new columns
NOT_READY = Fault(Reason.MISSING, "its table could not be made ready", "plan", "")
AT_A_TIME = 64  # tables that are created before they are registered

Tasks = Sequence[Sequence[Share]]

# Does something for each item, in parallel. Gives the results, and the failures of the other items.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], tuple[list[Any], list[BaseException]]]


@dataclass
class Outcome:
    """What all tasks of a batch did."""

    tally: Tally
    parts: Mapping[Way, Sequence[Part]]
    failures: Sequence[BaseException]  # the errors of tables that could not be made ready or written
    notes: Sequence[str]  # why some of the records have no table yet
    seconds: Mapping[str, float] = field(default_factory=dict)  # of all tasks together, by stage

    def files(self, route: Route) -> list[DataFileReceipt]:
        return [file for part in self.parts.get(route, ()) for file in part.files]


@dataclass
class Ready:
    """The tables of one batch, as far as they are ready."""

    tables: StreamTables
    each: Each
    observed: Callable[[], AbstractContextManager[object]] = nullcontext  # is entered for each change of the tables
    refused: dict[Route, Fault] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)  # the errors of tables that could not be made ready
    notes: list[str] = field(default_factory=list)  # why some of the records have no table yet

    def told(self, work: Work, *, last: bool) -> Work:
        """The same work with the tables as they are now. In the last pass nothing is news."""
        routes = {
            route: RouteWork(keeper.route_plan(last=last), keeper.landing.files, keeper.first_fields)
            for route, keeper in self.tables.keepers.items()
            if keeper.landing and route not in self.refused and (work.only is None or route in work.only)
        }
        unasked = self.tables.unasked
        fault = Fault(unasked.reason, unasked.detail, routing.STAGE, unasked.detail) if last else None
        return replace(work, routes=routes, refused=self.refused, unasked=fault)

    def make(self, news: Mapping[Route, SeenFields]) -> None:
        """Create and change tables, so that each route has a table that fits its records. Or say why it has none.

        Tables are created and then registered in groups of `AT_A_TIME`. If the start ends between the two, the next
        start finds at most these tables unregistered, and still without rows.
        """
        with self.observed():
            self._make(news)

    def _make(self, news: Mapping[Route, SeenFields]) -> None:
        ordered = sorted(news, key=str)
        for routes in (ordered[at : at + AT_A_TIME] for at in range(0, len(ordered), AT_A_TIME)):
            keepers = []
            for route, found in zip(routes, self.tables.at(*routes), strict=True):
                if isinstance(found, Refusal):
                    self.refused[route] = Fault(found.reason, found.detail, routing.STAGE, "")
                else:
                    keepers.append((route, found))
            planned, failures = self.each(lambda one: (*one, one[1].plan(news[one[0]])), keepers)
            self.failures += failures
            # A batch with failures is repeated, and commits no dead letters. So these are nobody's.
            self.refused |= dict.fromkeys(dict(keepers).keys() - {route for route, *_ in planned}, NOT_READY)
            self.tables.register()
            for route, keeper, plan in planned:
                self._note(route, keeper, plan.why)

    def _note(self, route: Route, keeper: TableKeeper, why: str) -> None:
        if keeper.landing is None:
            self.refused[route] = Fault(Reason.MISSING, why, "plan", "")
            self.notes.append(f"{keeper.name} is not created yet: {why}")


@dataclass
class Passes:
    """The passes over one batch."""

    tasks: Tasks
    run: Callable[[Work, Tasks], Sequence[Receipt]]  # runs one pass on Spark
    ready: Ready  # knows the tables, and makes them ready for news
    samples: Tasks = ()  # shares that are looked at first
    _kept: dict[Way, list[Part]] = field(default_factory=dict)
    _passes: list[list[TaskReceipt]] = field(default_factory=list)
    _failures: list[LakehouseError] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def outcome(self, work: Work) -> Outcome:
        self._look(work)
        for number in range(MOST_PASSES):
            work = self.ready.told(work, last=number == MOST_PASSES - 1)
            receipts = self._run(work, self.tasks)
            failed = {way: part.failure for way, part in _parts(receipts) if part.failure}
            self._failures += failed.values()
            news = _news(receipts, failed)
            self._keep(receipts, {*news}, failed)
            if not news:
                break
            self.ready.make(news)
            work = replace(work, only=frozenset(news), one_in=0)
        planned = [share for shares in self.tasks for share in shares]
        tally = tiles(planned, *self._passes, keeps_letters=False)
        return Outcome(tally, self._kept, [*self.ready.failures, *self._failures], self.ready.notes, self._seconds)

    def _look(self, work: Work) -> None:
        """Make the tables ready for what the samples bring. Nothing else comes of it."""
        routes = self.ready.told(work, last=False).routes if self.samples else {}
        if routes:
            look = replace(work, routes=routes, only=frozenset(routes), one_in=0, looks=True)
            news = _news(self._run(look, self.samples), ())
            if often := {route: seen for route, seen in news.items() if seen.records >= OFTEN}:
                self.ready.make(often)

    def _run(self, work: Work, tasks: Tasks) -> Sequence[Receipt]:
        receipts = self.run(work, tasks)
        for receipt in receipts:
            if receipt.error:
                raise receipt.error
            for stage, seconds in receipt.seconds.items():
                self._seconds[stage] += seconds
        return receipts

    def _keep(self, receipts: Sequence[Receipt], again: Container[Way], failed: Container[Way]) -> None:
        """Keep what is settled. Nothing of a route with news or a failure is, in any task: all of it is read again."""
        for receipt in receipts:
            for way, part in receipt.parts.items():
                if way not in again and way not in failed:
                    self._kept.setdefault(way, []).append(part)
        self._passes.append([_settled(receipt, again, failed) for receipt in receipts])


def _news(receipts: Iterable[Receipt], failed: Container[Way]) -> dict[Route, SeenFields]:
    """What is new, by route. The tasks are asked in their order, so the same news gives the same tables."""
    found: dict[Route, SeenFields] = {}
    for way, part in _parts(receipts):
        if part.news is not None and isinstance(way, Route) and way not in failed:
            found.setdefault(way, SeenFields()).merge(part.news)
    return found


def _parts(receipts: Iterable[Receipt]) -> Iterator[tuple[Way, Part]]:
    for receipt in sorted(receipts, key=lambda each: each.task):
        yield from receipt.parts.items()


def _settled(receipt: Receipt, again: Container[Way], failed: Container[Way]) -> TaskReceipt:
    """The counts of one task without those of the routes that are read again.

    Those of failed routes are counted as left out, so that the other counts can be checked. Nobody gets to see them,
    because the batch is repeated.
    """
    counts = []
    for share, received in receipt.received.items():
        of_parts = [(way, part.counts[share]) for way, part in receipt.parts.items() if share in part.counts]
        settled = [_left_out(count) if way in failed else count for way, count in of_parts if way not in again]
        elsewhere = sum(count.received for way, count in of_parts if way in again)
        counts.append(_together(received, settled, elsewhere))
    kept = [part for way, part in receipt.parts.items() if way not in again and way not in failed]
    return TaskReceipt(counts, [file for part in kept for file in part.files])


def _left_out(count: Count) -> Count:
    return Count(count.share, received=count.received, outcomes=Counter({FILTERED: count.received}))


def _together(received: Count, settled: Sequence[Count], elsewhere: int) -> Count:
    outcomes = sum((count.outcomes for count in settled), Counter(received.outcomes))
    events = [count.event_us for count in settled if count.event_us is not None]
    return replace(
        received,
        outcomes=outcomes,
        rows=sum(count.rows for count in settled),
        elsewhere=received.elsewhere + elsewhere,
        event_us=max(events, default=None),
    )
