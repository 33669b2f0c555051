"""Keep one table in step with its settings and its data, and remember our position on it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from catalog import TableFiles
from lakehouse_ingest.errors import SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger.keys import EVENT_TIME_FIELD
from lakehouse_ingest.schema import layout, table_plans
from lakehouse_ingest.schema.column_types import width
from lakehouse_ingest.schema.columns import EVENT_TIME, TOO_MANY, TOO_MANY_NEW, RefusedField, TablePlan
from lakehouse_ingest.schema.contract import contract_of
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.schema.planning.growth import new_fields
from lakehouse_ingest.schema.planning.widening import outgrown
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.table_plans import Planned, first_fields, plan_from_seen
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.tables import (
    Add,
    Evolution,
    PipelineTables,
    Plan,
    Position,
    TableSpec,
    TableState,
)
from lakehouse_ingest.tables.effects import ChangesTables, Landing

FOLLOWED = 10  # attempts to change the columns in one batch
MOST_REFUSED = 10_000  # fields that may not become columns; a sender may invent them without end


@dataclass
class TableKeeper:
    """One table, created when its first records show which columns it needs."""

    lake: PipelineTables
    effects: ChangesTables
    name: str
    settings: TableSettings
    epoch: int
    changed: Callable[[str, list[str]], None]
    refuse_names: bool = False  # refuse fields that would get the same column name, instead of changing the name
    origin: Mapping[str, str] | None = None  # properties that keep the topic and type of the table's name
    landing: Landing | None = None
    _plan: Planned | None = None
    _schema: int = -1  # the schema that the plan was made from
    _new: int = 0  # columns that this batch has brought

    def route_plan(self, *, last: bool = False) -> RoutePlan:
        """How a task makes rows for the table. In the last pass over a batch nothing is news any more."""
        assert self._plan is not None
        plan = self._plan.plan
        if self.settings.columns:
            return RoutePlan(plan)
        required = {each.field for each in plan.columns if each.required and each.name != EVENT_TIME}
        named = {each for each in required if self.settings.contract or each in self.settings.contracts}
        contract = contract_of(self.settings)
        relaxing = frozenset(each for each in named if contract.rule_of(each).widens)
        following = Following(contract, frozenset(self.settings.hints), relaxing, self._full(plan), final=last)
        return RoutePlan(plan, self._plan.refused, following)

    def _full(self, plan: TablePlan) -> str:
        """Why no column may be added. Otherwise a sender who invents fields would make every batch run again."""
        if self.settings.max_columns <= sum(width(column.iceberg) for column in plan.columns):
            return TOO_MANY
        return TOO_MANY_NEW if self._settings_left().max_new == 0 else ""

    @property
    def first_fields(self) -> frozenset[str]:
        """The fields that planning has to know of, however many others there are."""
        return first_fields(self.settings, self._plan.plan if self._plan else None)

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields that pages may show."""
        return self._plan.plan.names if self._plan else frozenset()

    def begin_batch(self) -> None:
        """Forget what only one batch may not bring, and see which columns others have added since the last one."""
        self._new = 0
        if self.landing and self.landing.is_stale:
            self.landing.load(self._files())
        if not self.settings.columns:
            self._look_again()
        if self._plan:
            kept = tuple(each for each in self._plan.refused if each.why != TOO_MANY_NEW)
            self._plan = replace(self._plan, refused=kept)

    def plan(self, seen: SeenFields) -> Planned:
        """The plan for records with these fields."""
        if self._plan is None:
            first, spec = self._first(seen)
            if spec is None:
                return first
            self.adopt(self.effects.create(replace(spec, properties={**spec.properties, **(self.origin or {})})))
            assert self._plan is not None
        if self.settings.columns:
            return self._plan
        # Another program may change the columns at the same time. Then plan again from the table as it is.
        for _ in range(FOLLOWED):
            before = self._schema
            refused, settled = self._grown(seen)
            if settled or self._schema == before:
                self._plan = replace(self._plan, refused=_merged(self._plan.refused, refused))
                return self._plan
        raise TryAgain(f"another program changed the columns of {self.name} during {FOLLOWED} attempts to add ours")

    def _grown(self, seen: SeenFields) -> tuple[tuple[RefusedField, ...], bool]:
        """Add columns for fields that the table lacks.

        Returns the fields that may not become columns, and whether every other change is now in the table.
        """
        assert self._plan is not None
        assert self.landing is not None
        plan = self._plan.plan
        growth = new_fields(plan, self._settings_left(), seen.fields, refuse_names=self.refuse_names)
        changes = [Add(path, column) for path, column in growth.columns]
        lacking = seen.lacking(each.field for each in plan.columns if each.required)
        wider = outgrown(plan, self.settings, seen.fields, lacking)
        if not (changes or wider):
            return growth.refused, True
        done = self._follow(self.landing.place, [*changes, *wider])
        self._new += sum(width(change.column.type) for change in changes if done.covers(change))
        missing = {each.path: each.reason for each in done.refusals if each.current is None}
        refused = tuple(
            RefusedField(where, name, missing[change.path])
            for change, (where, name) in zip(changes, growth.whence, strict=True)
            if change.path in missing
        )
        not_taken = {each.path for each in done.refusals}
        settled = all(done.covers(each) or each.path in not_taken for each in (*changes, *wider))
        return (*growth.refused, *refused), settled

    def _look_again(self) -> None:
        """Use columns that others have added since: a field that was promoted is no longer rescued."""
        if self.landing is None or self.landing.place.schema == self._schema:
            return
        state = self.lake.find(self.name)
        if state is not None and state.uuid == self.landing.place.uuid:
            # If the table now contradicts the settings, the next start reports it.
            with suppress(SettingsRefused, TableChanged):
                self._take(state)

    def _settings_left(self) -> TableSettings:
        """The settings, with as many new columns as earlier passes over the batch have left."""
        if self.settings.max_new is None or not self._new:
            return self.settings
        return self.settings.model_copy(update={"max_new": max(0, self.settings.max_new - self._new)})

    def _first(self, seen: SeenFields) -> tuple[Planned, TableSpec | None]:
        """The plan from the first records, and the table to create: None if the records do not say enough or fit."""
        try:
            planned = plan_from_seen(self.name, self.settings, seen.fields, refuse_names=self.refuse_names)
            return planned, table_plans.spec(planned.plan, self.settings) if planned.settled else None
        except SettingsRefused as refusal:
            # Settings that are wrong for any record were refused at the start. These are wrong for these records only,
            # and whoever sends records must not be able to stop a pipeline.
            return Planned(TablePlan(self.name, (), None, "iso"), settled=False, why=str(refusal)), None

    def adopt(self, state: TableState, place: Position | None = None) -> None:
        """Use an existing table. Raises if it does not fit the settings, before anything is written."""
        lies_otherwise = layout.lies_otherwise(state, self.settings)
        self._take(state)
        assert self._plan is not None
        place = place or self._opened()  # only who has opened a table may change it
        if added := table_plans.additions(state, self._plan.plan, self.settings):
            if EVENT_TIME_FIELD not in state.properties:
                self.effects.set_properties(place, table_plans.event_time_of(self._plan.plan))
            self._follow(place, added)
        if lies_otherwise:
            self._lay_out(place)
        self.landing = Landing(replace(place, schema=self._schema), self._files())

    def _opened(self) -> Position:
        """Open a table that did not exist, or was not ours, when this start read the ledger."""
        place = self.effects.open(self.name, self.epoch)
        if place.mark:
            # An earlier start wrote to it until now. It registered the table first, so the next start will find it.
            raise TryAgain(f"an earlier start wrote to {self.name} after this one had read the ledger; starting again")
        return place

    def _lay_out(self, place: Position) -> None:
        """Partition new files as the settings say. Existing files stay as they are."""
        reached(FailPoint.EVOLVING)
        state, changes = self.effects.lay_out(place, layout.partitions_of(self.settings))
        reached(FailPoint.EVOLVED)
        self._take(state)
        self.changed(self.name, changes)

    def _take(self, state: TableState) -> None:
        refused = self._plan.refused if self._plan else ()
        self._schema = state.schema_id
        self._plan = Planned(table_plans.plan_that_stands(state, self.settings), refused=refused)
        if self.landing:
            self.landing.place = replace(self.landing.place, schema=state.schema_id)
            self.landing.load(self._files())

    def _files(self) -> TableFiles:
        """How files are written for the table as it is now; the settings override what the table says of files."""
        files = self.lake.files(self.name)
        return replace(files, properties={**files.properties, **FileOptions.of(self.settings).properties()})

    def _follow(self, place: Position, changes: Sequence[Evolution]) -> Plan:
        """Apply all changes in one commit. The plan lists what the contract refused."""
        reached(FailPoint.EVOLVING)
        state, done = self.effects.change(place, changes)
        reached(FailPoint.EVOLVED)
        self._take(state)
        if done.changes:
            self.changed(self.name, [str(change) for change in done.changes])
        return done


def _merged(before: Sequence[RefusedField], more: Sequence[RefusedField]) -> tuple[RefusedField, ...]:
    return tuple({(each.within, each.name): each for each in (*before, *more)}.values())[-MOST_REFUSED:]
