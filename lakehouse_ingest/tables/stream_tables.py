"""The tables of one stream: found by route, and created when their first record arrives, up to a limit."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NoReturn

from lakehouse_ingest.errors import SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger.keys import TOPIC, TYPE
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema import layout, names, table_plans
from lakehouse_ingest.settings import StreamSettings, TableSettings
from lakehouse_ingest.stages.routing import SEPARATOR, Route
from lakehouse_ingest.tables import PipelineTables, Position, Registered, TableState, unmade
from lakehouse_ingest.tables.batch_log import BatchLog
from lakehouse_ingest.tables.effects import ChangesTables
from lakehouse_ingest.tables.table_keeper import TableKeeper

REFUSED_S = 30.0  # how long a refusal is kept: a person may create a missing table, or rename one that is in the way


@dataclass(frozen=True)
class Refusal:
    """Why a route leads to no table."""

    reason: Reason
    detail: str


@dataclass
class StreamTables:
    """What one start of one stream knows about its tables."""

    lake: PipelineTables
    effects: ChangesTables
    stream: StreamSettings
    namespace: str
    record: BatchLog  # where the tables are registered
    taken: Collection[str]  # names of tables that are not for records
    epoch: int
    registered: dict[str, Registered]
    opened: Mapping[str, Position]  # our position on the tables that existed at the start
    changed: Callable[[str, list[str]], None]
    find_all: Callable[[Collection[str]], Mapping[str, TableState | None]]
    _found: dict[Route, TableKeeper] = field(default_factory=dict)
    _refused: dict[Route, Refusal] = field(default_factory=dict)  # kept, so that not each batch asks the catalog again
    _since: float = 0.0  # when the oldest of these refusals was kept

    def __post_init__(self) -> None:
        """Refuse now what can be refused without any record."""
        for entry in self.stream.tables:
            table_plans.plan_from_settings(entry.table, entry)
            layout.partitions_of(entry)
        fixed = [Route(number) for number, entry in enumerate(self.stream.tables) if "{" not in entry.table]
        self.at(*fixed, *self._earlier_routes())

    def at(self, *routes: Route) -> list[TableKeeper | Refusal]:
        """Find the tables of these routes. Those that are not known yet are loaded in parallel."""
        if monotonic() - self._since >= REFUSED_S:
            self._refused, self._since = {}, monotonic()
        unknown = [route for route in routes if route not in self._found and route not in self._refused]
        loaded = dict(self.find_all({self._name(route) for route in unknown}))
        return [self._found.get(each) or self._refused.get(each) or self._looked_at(each, loaded) for each in routes]

    def _looked_at(self, route: Route, loaded: dict[str, TableState | None]) -> TableKeeper | Refusal:
        found = self._new(route, loaded)
        if isinstance(found, TableKeeper):
            self._found[route] = found
        # There may be more refused routes than fit into memory.
        elif len(self._refused) < 2 * self.stream.max_tables:
            self._refused[route] = found
        return found

    @property
    def keepers(self) -> Mapping[Route, TableKeeper]:
        """The tables, by the routes that lead to them."""
        return self._found

    @property
    def unasked(self) -> Refusal:
        """The refusal of the routes beyond those that one batch looks at."""
        if self.lake.creates:
            return Refusal(Reason.TOO_MANY_TABLES, f"the stream feeds {self.stream.max_tables} tables: `max_tables`")
        return Refusal(Reason.NO_TABLE, unmade("known table of its topic or type"))

    def register(self) -> None:
        """Register new tables for the next start, before their first row is written."""
        new = {
            keeper.name: Registered(keeper.landing.place.uuid, route.topic, route.type)
            for route, keeper in self._found.items()
            if keeper.landing and self._uuid_of(keeper.name) != keeper.landing.place.uuid
        }
        if new:
            self.effects.register(self.record.place, new)
        self.registered |= new
        if new:
            reached(FailPoint.REGISTERED)

    def _uuid_of(self, name: str) -> str:
        return self.registered[name].uuid if name in self.registered else ""

    def _earlier_routes(self) -> list[Route]:
        """The routes to registered tables that the settings still have."""
        return [route for name, each in self.registered.items() for route in self._routes_to(name, each)]

    def _routes_to(self, name: str, table: Registered) -> Iterator[Route]:
        for number, entry in enumerate(self.stream.tables):
            route = Route(number, table.topic, table.type)
            if ("{topic}" in entry.table, "{type}" in entry.table) != (bool(table.topic), bool(table.type)):
                continue
            if name not in (plain := self._name(route), _apart(plain, route)):
                continue
            wanted = [(entry.topics, table.topic), (entry.types, table.type)]
            if all(not some or not known or known in some for some, known in wanted):
                yield route
                if all(not some or known for some, known in wanted):
                    return  # this entry takes every such record, so later entries get none

    # -- a new route --------------------------------------------------------------------------------------

    def _new(self, route: Route, loaded: dict[str, TableState | None]) -> TableKeeper | Refusal:
        name = self._name(route)
        state = loaded.pop(name) if name in loaded else self.lake.find(name)
        if self._is_anothers(name, route, state):
            apart = _apart(name, route)
            state = self.lake.find(apart)
            if self.stream.names == "refuse" or self._is_anothers(apart, route, state):
                return Refusal(Reason.NAME_TAKEN, f"the name {name} is taken by another topic or type")
            name = apart
        if state is None and _origin(route) and not self.lake.creates:
            return Refusal(Reason.NO_TABLE, unmade(f"table {name}"))
        mine = {*self.registered, *(keeper.name for keeper in self._found.values())}
        if state and name not in self.opened and name not in mine and self.lake.has_landed_in(state):
            self._begin_with(name, state, route)
        if name not in mine and len(mine) >= self.stream.max_tables:
            return Refusal(Reason.TOO_MANY_TABLES, f"the stream feeds {len(mine)} tables: `max_tables`")
        keeper = TableKeeper(
            self.lake,
            self.effects,
            name,
            self.stream.tables[route.entry],
            self.epoch,
            self.changed,
            refuse_names=self.stream.names == "refuse",
            origin=_origin(route),
        )
        try:
            self._take(keeper, state)
        except (SettingsRefused, TableChanged) as refusal:
            if name in self.registered or not _origin(route):
                raise
            # A topic or type in the records happens to name another program's table. That is no reason to stop.
            return Refusal(Reason.NAME_TAKEN, str(refusal))
        return keeper

    def _begin_with(self, name: str, state: TableState, route: Route) -> NoReturn:
        """Start again with a table of ours that this start did not count.

        The batch log was lost, and this table could not be read when the start looked for ours.
        """
        self.effects.register(self.record.place, {name: Registered(state.uuid, route.topic, route.type)})
        raise TryAgain(f"the table {name} has rows of this pipeline that this start did not count; starting again")

    def _take(self, keeper: TableKeeper, state: TableState | None) -> None:
        if state:
            keeper.adopt(state, self.opened.get(keeper.name))
        elif refusal := self.lake.look(keeper.name).refusal:
            raise SettingsRefused(refusal)  # a view has the name

    def _name(self, route: Route) -> str:
        template = self.stream.tables[route.entry].table
        return f"{self.namespace}.{names.of_table(template, route.topic, route.type)}"

    def _is_anothers(self, name: str, route: Route, state: TableState | None) -> bool:
        mine = (route.topic, route.type)
        others = {known: (each.topic, each.type) for known, each in self.registered.items()}
        others |= {keeper.name: (of.topic, of.type) for of, keeper in self._found.items()}
        if others.pop(name, mine) != mine or names.meets(name, (*self.taken, *others)):
            return True
        # The table's properties name another topic or type. A table without such properties is free to use.
        found = {key: text for key, text in (state.properties if state else {}).items() if key in (TOPIC, TYPE)}
        return bool(found) and found != _origin(route)


def foretold(stream: StreamSettings, topics: Sequence[str]) -> list[str]:
    """The names of the tables that are known before any record is read."""
    wanted = (
        names.of_table(entry.table, topic, "")
        for number, entry in enumerate(stream.tables)
        if "{type}" not in entry.table
        for topic in ((entry.topics or topics) if "{topic}" in entry.table else [""])
        if not any(_takes_all_of(topic, earlier) for earlier in stream.tables[:number])
    )
    return [*dict.fromkeys(wanted)]


def _takes_all_of(topic: str, entry: TableSettings) -> bool:
    """True if this entry takes every record of the topic, so that later entries get none."""
    by_type = entry.types or "{type}" in entry.table
    return bool(topic) and not by_type and (not entry.topics or topic in entry.topics)


def _apart(name: str, route: Route) -> str:
    return names.apart(name, f"{route.topic}{SEPARATOR}{route.type}")


def _origin(route: Route) -> dict[str, str]:
    return {key: text for key, text in ((TOPIC, route.topic), (TYPE, route.type)) if text}
