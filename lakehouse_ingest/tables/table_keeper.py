"""Keeps a table in step with its settings and its data, and our place on it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse_ingest.errors import SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger.keys import EVENT_TIME_FIELD
from lakehouse_ingest.schema import declared, existing, layout
from lakehouse_ingest.schema.columns import RefusedField, TablePlan
from lakehouse_ingest.schema.contract import has_beyond
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.tables import (
    Add,
    Evolution,
    PipelineTables,
    Plan,
    Position,
    TableSpec,
    TableState,
    first_batch,
    widening,
)
from lakehouse_ingest.tables.effects import Landing, TableEffects
from lakehouse_ingest.tables.first_batch import Planned
from lakehouse_ingest.tables.growth import new_fields

Fields = Sequence[tuple[str, T.DataType]]
FOLLOWED = 10  # times in one batch


@dataclass
class TableKeeper:
    """One table, made when its first records tell what it should be."""

    lake: PipelineTables
    effects: TableEffects
    name: str
    settings: TableSettings
    format: Format
    epoch: int
    changed: Callable[[str, list[str]], None]
    refuse_names: bool = False  # fields whose names meet, instead of telling them apart
    origin: Mapping[str, str] | None = None  # properties that say what its name was made of
    landing: Landing | None = None
    _plan: Planned | None = None
    _schema: int = -1  # the one that the plan was made from

    @property
    def settled(self) -> bool:
        """Whether no record has to be looked at to know what the table is like."""
        return self.landing is not None and bool(self.settings.columns)

    def plan(self, fields: Fields, records: DataFrame) -> Planned:
        """What the records are to look like, whose fields these are; `records` are looked at where they don't tell."""
        if self._plan is None:
            first, spec = self._first(fields, records)
            if spec is None:
                return first
            self.adopt(self.effects.create(replace(spec, properties={**spec.properties, **(self.origin or {})})))
            assert self._plan is not None
        if self.settings.columns:
            return self._plan
        self._look_again()
        # Somebody else may have made the table, or a column, a moment ago: then it has not what was asked for.
        for _ in range(FOLLOWED):
            before = self._schema
            refused, settled = self._grown(fields, records)
            if settled or self._schema == before:
                beyond = self._plan.plan.aside is not None and has_beyond(self._plan.plan, fields)
                return replace(self._plan, refused=refused, beyond=beyond)
        raise TryAgain(f"others change the columns of {self.name} each time that we add ours")

    def _grown(self, fields: Fields, records: DataFrame) -> tuple[tuple[RefusedField, ...], bool]:
        """Add what the records have and the table has not: what may not be, and whether of all else it is known that
        it is there as it was asked for."""
        assert self._plan is not None
        plan = self._plan.plan
        growth = new_fields(plan, self.settings, self.format, fields, records, refuse_names=self.refuse_names)
        changes = [Add(path, column) for path, column in growth.columns]
        wider = widening.outgrown(plan, self.settings, self.format, fields, records)
        if not (changes or wider):
            return growth.refused, True
        done = self._follow([*changes, *wider])
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
        """Columns that others have added since are columns: a field that was promoted is set aside no more."""
        if self.landing is None or self.landing.place.schema == self._schema:
            return
        state = self.lake.find(self.name)
        if state is not None and state.uuid == self.landing.place.uuid:
            # What contradicts the settings is for the next start to say.
            with suppress(SettingsRefused, TableChanged):
                self._take(state)

    def _first(self, fields: Fields, records: DataFrame) -> tuple[Planned, TableSpec | None]:
        """The plan that the first records give, and the table; none when they do not fit the settings."""
        try:
            planned = first_batch.plan_from_records(
                self.name, self.settings, self.format, fields, records, refuse_names=self.refuse_names
            )
            return planned, declared.spec(planned.plan, self.settings) if planned.settled else None
        except SettingsRefused as refusal:
            # Settings that are wrong by themselves were refused at the start; these are wrong for such records, and
            # what sends records may not end a pipeline.
            return Planned(TablePlan(self.name, (), None, "iso"), settled=False, why=str(refusal)), None

    def adopt(self, state: TableState, place: Position | None = None) -> None:
        """Use a table that is there, whoever made it; refuse it before anything is written."""
        lies_otherwise = layout.lies_otherwise(state, self.settings)
        self._take(state)
        assert self._plan is not None
        if added := existing.additions(state, self._plan.plan, self.settings):
            if EVENT_TIME_FIELD not in state.properties:
                self.effects.set_properties(self.name, declared.event_time_of(self._plan.plan))
            self._follow(added)
        if lies_otherwise:
            self._lay_out()
        place = place or self._opened()
        files = replace(FileOptions.of(self.settings), all_open=layout.parts_zeros(self._plan.plan, self.settings))
        self.landing = Landing(replace(place, schema=self._schema), files)

    def _opened(self) -> Position:
        """On a table that was not there, or not ours, when this start looked where to begin."""
        place = self.effects.open(self.name, self.epoch)
        if place.mark:
            # The writer before us has landed in it until this very moment; it has told the batch record of it first.
            raise TryAgain(f"rows of this pipeline came to {self.name} after this start had looked; begun again")
        return place

    def _lay_out(self) -> None:
        """New files by the settings; those that are there stay as they are."""
        reached(FailPoint.EVOLVING)
        state, changes = self.effects.lay_out(self.name, layout.partitions_of(self.settings))
        reached(FailPoint.EVOLVED)
        self._take(state)
        self.changed(self.name, changes)

    def _take(self, state: TableState) -> None:
        self._schema = state.schema_id
        self._plan = Planned(existing.plan_that_stands(state, self.settings))
        if self.landing:
            self.landing.place = replace(self.landing.place, schema=state.schema_id)

    def _follow(self, changes: Sequence[Evolution]) -> Plan:
        """All in one commit, and what the table would not take."""
        reached(FailPoint.EVOLVING)
        state, done = self.effects.change(self.name, changes)
        reached(FailPoint.EVOLVED)
        self._take(state)
        if done.changes:
            self.changed(self.name, [str(change) for change in done.changes])
        return done
