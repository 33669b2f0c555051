"""Which tables a pipeline has landed in, as the batch log and the tables themselves say."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from catalog import TableState
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import REGISTERED, TOPIC, TYPE
from lakehouse_ingest.tables.changes import TableChanges
from lakehouse_ingest.tables.position import Known, Registered, has_landed, newest_epoch


class Registry(TableChanges):
    """The tables that are known to hold rows of this pipeline, or to be about to."""

    def registered(self, record: str) -> dict[str, "Registered"]:
        """The tables that this pipeline has landed in, or was about to, as the batch record's properties say."""
        state = self.find(record)
        return self.registered_in(state) if state else {}

    def registered_in(self, record: TableState) -> dict[str, "Registered"]:
        prefix = self._registered_as("")
        return {
            key.removeprefix(prefix): Registered(**json.loads(text))
            for key, text in record.properties.items()
            if key.startswith(prefix)
        }

    def register(self, record: str, tables: Mapping[str, "Registered"]) -> None:
        """Before the first row lands in a table: a start has to know them all."""
        if not tables:
            return
        self.tell(record, {self._registered_as(name): json.dumps(asdict(each)) for name, each in tables.items()})

    def knows(self, table: str) -> bool:
        """Whether a start of this pipeline has ever come so far as to leave its mark or its branch there."""
        return self._newest_epoch(table) > 0

    def has_landed_in(self, state: TableState) -> bool:
        return has_landed(state, self._pipeline)

    def known_in(self, namespace: str) -> Known:
        """The tables of a namespace that know this pipeline, whatever the batch record says."""
        tables: dict[str, Registered] = {}
        unread: dict[str, LakehouseError] = {}
        for name in self.names_in(namespace):
            try:
                state = self.find(name)
            except LakehouseError as failure:
                unread[name] = failure
                continue
            if state and newest_epoch(state, self._pipeline):
                tables[name] = Registered(state.uuid, state.properties.get(TOPIC, ""), state.properties.get(TYPE, ""))
        return Known(tables, unread)

    def heads(self, record: str) -> dict[str, marks.Head]:
        """The last landing in each table, as the batch record has it."""
        state = self.find(record)
        return self.heads_in(state) if state else {}

    def heads_in(self, record: TableState) -> dict[str, marks.Head]:
        return marks.heads((each.summary for each in record.ancestors()), self._pipeline)

    def _registered_as(self, table: str) -> str:
        return f"{REGISTERED}{self._pipeline}.{table}"

    def _newest_epoch(self, table: str) -> int:
        state = self.find(table)
        return newest_epoch(state, self._pipeline) if state else 0
