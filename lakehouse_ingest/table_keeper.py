"""Keeps a stream's table in step with its settings and its data, and our place on it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakehouse_ingest import planning
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.planning import Planned
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.tables import Column, Lake, Place, TableState
from lakehouse_ingest.writers.iceberg import FileOptions


@dataclass
class Landing:
    """One table of the stream: where we stand on it, and how its files are written."""

    place: Place
    files: FileOptions


class TableKeeper:
    """One table, made when its first records tell what it should be."""

    def __init__(
        self,
        lake: Lake,
        name: str,
        settings: TableSettings,
        epoch: int,
        changed: Callable[[str, list[str]], None],
    ) -> None:
        self.name = name
        self.landing: Landing | None = None
        self._lake, self._settings, self._epoch, self._changed = lake, settings, epoch, changed
        self._plan: Planned | None = None
        planning.plan_from_settings(name, settings)  # refused now, not at the first record
        planning.partitions_of(settings)
        if state := lake.find(name):
            self._adopt(state)

    @property
    def looks_at_records(self) -> bool:
        """Whether a batch is read more than once: undeclared columns follow the data, and a first batch tells."""
        return not self._settings.columns or self.landing is None

    def plan(self, records: DataFrame) -> tuple[Planned, Landing | None]:
        if self._plan is None:
            planned = planning.plan_from_records(self.name, self._settings, records)
            if not planned.settled:
                return planned, None
            self._adopt(self._lake.create(planning.spec(planned.plan, self._settings)))
        elif not self._settings.columns and (added := planning.new_fields(self._plan.plan, records)):
            self._take(self._add(added))
        assert self._plan is not None
        return self._plan, self.landing

    def _adopt(self, state: TableState) -> None:
        """Use a table that is there, whoever made it; refuse it before anything is written."""
        planning.check_layout(state, self._settings)
        self._take(state)
        assert self._plan is not None
        if added := planning.additions(state, self._plan.plan, self._settings):
            self._take(self._add(added))
        self.landing = Landing(self._lake.open(self.name, self._epoch), FileOptions.of(self._settings))

    def _take(self, state: TableState) -> None:
        plan = planning.plan_from_table(state, self._settings)
        if plan is None:
            raise SettingsRefused(
                f"the table {self.name} does not say how its event times are written: set `event_time_unit`"
            )
        self._plan = Planned(plan)
        if self.landing:
            self.landing.place = replace(self.landing.place, schema=state.schema_id)

    def _add(self, columns: list[tuple[str, Column]]) -> TableState:
        state = self._lake.add_columns(self.name, columns)
        self._changed(self.name, [f"+ {'.'.join(filter(None, (path, new.name)))} {new.type}" for path, new in columns])
        return state
