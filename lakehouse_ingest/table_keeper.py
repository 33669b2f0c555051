"""Keeps a table in step with its settings and its data, and our place on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse_ingest import planning
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.formats import Format
from lakehouse_ingest.planning import Planned
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.shaping import TablePlan
from lakehouse_ingest.tables import Column, Lake, Place, TableSpec, TableState
from lakehouse_ingest.writers.iceberg import FileOptions

Fields = Sequence[tuple[str, T.DataType]]


@dataclass
class Landing:
    """One table: where we stand on it, and how its files are written."""

    place: Place
    files: FileOptions


@dataclass
class TableKeeper:
    """One table, made when its first records tell what it should be."""

    lake: Lake
    name: str
    settings: TableSettings
    format: Format
    epoch: int
    changed: Callable[[str, list[str]], None]
    refuse_names: bool = False  # fields whose names meet, instead of telling them apart
    origin: Mapping[str, str] | None = None  # properties that say what its name was made of
    landing: Landing | None = None
    _plan: Planned | None = None

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
            self.adopt(self.lake.create(replace(spec, properties={**spec.properties, **(self.origin or {})})))
            assert self._plan is not None
            return replace(self._plan, refused=first.refused)
        if self.settings.columns:
            return self._plan
        growth = planning.new_fields(
            self._plan.plan, self.settings, self.format, fields, records, refuse_names=self.refuse_names
        )
        if growth.columns:
            self._take(self._add(growth.columns))
        return replace(self._plan, refused=growth.refused)

    def _first(self, fields: Fields, records: DataFrame) -> tuple[Planned, TableSpec | None]:
        """The plan that the first records give, and the table; none when they do not fit the settings."""
        try:
            planned = planning.plan_from_records(
                self.name, self.settings, self.format, fields, records, refuse_names=self.refuse_names
            )
            return planned, planning.spec(planned.plan, self.settings) if planned.settled else None
        except SettingsRefused as refusal:
            # Settings that are wrong by themselves were refused at the start; these are wrong for such records, and
            # what sends records may not end a pipeline.
            return Planned(TablePlan(self.name, (), None, "iso"), settled=False, why=str(refusal)), None

    def adopt(self, state: TableState, place: Place | None = None) -> None:
        """Use a table that is there, whoever made it; refuse it before anything is written."""
        lies_otherwise = planning.lies_otherwise(state, self.settings)
        self._take(state)
        assert self._plan is not None
        if added := planning.additions(state, self._plan.plan, self.settings):
            if planning.FIELD not in state.properties:
                self.lake.tell(self.name, planning.event_time_of(self._plan.plan))
            self._take(self._add(added))
        if lies_otherwise:
            self._lay_out()
        self.landing = Landing(place or self.lake.open(self.name, self.epoch), FileOptions.of(self.settings))

    def _lay_out(self) -> None:
        """New files by the settings; those that are there stay as they are."""
        reached(FailPoint.EVOLVING)
        state, changes = self.lake.lay_out(self.name, planning.partitions_of(self.settings))
        reached(FailPoint.EVOLVED)
        self._take(state)
        self.changed(self.name, changes)

    def _take(self, state: TableState) -> None:
        self._plan = Planned(planning.plan_that_stands(state, self.settings))
        if self.landing:
            self.landing.place = replace(self.landing.place, schema=state.schema_id)

    def _add(self, columns: Sequence[tuple[str, Column]]) -> TableState:
        reached(FailPoint.EVOLVING)
        state = self.lake.add_columns(self.name, columns)
        reached(FailPoint.EVOLVED)
        self.changed(self.name, [f"+ {'.'.join(filter(None, (path, new.name)))} {new.type}" for path, new in columns])
        return state
