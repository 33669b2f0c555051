"""Make the tables of a batch ready for its records, and tell the tasks what they have to know of them."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse_ingest.pipeline.task import RouteWork, Work
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.stages import routing
from lakehouse_ingest.stages.records import Fault
from lakehouse_ingest.stages.routing import Route
from lakehouse_ingest.tables.stream_tables import Refusal, StreamTables
from lakehouse_ingest.tables.table_keeper import TableKeeper

NOT_READY = Fault(Reason.MISSING, "its table could not be made ready", "plan", "")
AT_A_TIME = 64  # tables that are created before they are registered

# Does something for each item, in parallel. Gives the results, and the failures of the other items.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], tuple[list[Any], list[BaseException]]]


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
