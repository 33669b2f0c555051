"""Find the tables that a pipeline has written to, in the batch log and in the tables themselves."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from catalog import TableState
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import PROBE, REGISTERED, TOPIC, TYPE
from lakehouse_ingest.tables.changes import TableChanges
from lakehouse_ingest.tables.position import Known, Position, Registered, has_landed, newest_epoch


class Registry(TableChanges):
    """Tables that hold rows of this pipeline, or soon will."""

    def registered(self, record: str) -> dict[str, "Registered"]:
        """The tables that the batch log's properties list for this pipeline."""
        state = self.find(record)
        return self.registered_in(state) if state else {}

    def registered_in(self, record: TableState) -> dict[str, "Registered"]:
        prefix = self._registered_as("")
        return {
            key.removeprefix(prefix): Registered(**json.loads(text))
            for key, text in record.properties.items()
            if key.startswith(prefix)
        }

    def register(self, record: str, tables: Mapping[str, "Registered"], place: Position | None = None) -> None:
        """List tables in the batch log, before their first row is written: the next start must know all of them."""
        if not tables:
            return
        told = {self._registered_as(name): json.dumps(asdict(each)) for name, each in tables.items()}
        self.tell(record, told, place)

    def knows(self, table: str) -> bool:
        """True if a start of this pipeline has ever left a mark, a branch or an epoch on the table."""
        return self._newest_epoch(table) > 0

    def has_landed_in(self, state: TableState) -> bool:
        return has_landed(state, self._pipeline)

    def known_in(self, namespace: str) -> Known:
        """The tables of a namespace that hold traces of this pipeline. The batch log is not asked."""
        tables: dict[str, Registered] = {}
        unread: dict[str, LakehouseError] = {}
        for name in self.names_in(namespace):
            if name.rpartition(".")[2].startswith(PROBE):
                continue  # a start that tries the catalog leaves its traces there as well
            try:
                state = self.find(name)
            except LakehouseError as failure:
                unread[name] = failure
                continue
            if state and newest_epoch(state, self._pipeline):
                tables[name] = Registered(state.uuid, state.properties.get(TOPIC, ""), state.properties.get(TYPE, ""))
        return Known(tables, unread)

    def heads(self, record: str) -> dict[str, marks.Head]:
        """The last batch in each table, according to the batch log."""
        state = self.find(record)
        return self.heads_in(state) if state else {}

    def heads_in(self, record: TableState) -> dict[str, marks.Head]:
        return marks.heads((each.summary for each in record.ancestors()), self._pipeline)

    def _registered_as(self, table: str) -> str:
        return f"{REGISTERED}{self._pipeline}.{table}"

    def _newest_epoch(self, table: str) -> int:
        state = self.find(table)
        return newest_epoch(state, self._pipeline) if state else 0
