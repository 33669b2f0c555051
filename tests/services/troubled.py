"""A catalog whose answers get lost, come late, twice or from a replica that is behind: for any catalog of pyiceberg's.

It stands between a client and the catalog, so that the catalog's own loads stay true. Each trouble strikes one commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table

from catalog import CatalogClient

Send = Callable[[], CommitTableResponse]
Trouble = Callable[[Send], CommitTableResponse]
NO_ANSWER = "Read timed out."


@dataclass
class Troubled:
    """`commits` strike the next commits in their order, `loads` give or change what the next loads show."""

    real: Catalog
    commits: list[Trouble] = field(default_factory=list)
    loads: list[Callable[[Table], Table]] = field(default_factory=list)
    late: list[Send] = field(default_factory=list)  # requests that are under way
    sent: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def load_table(self, identifier: Any) -> Table:
        table = self.real.load_table(identifier)
        return self.loads.pop(0)(table) if self.loads else table

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.sent += 1

        def send() -> CommitTableResponse:
            return self.real.commit_table(table, requirements, updates)

        return self.commits.pop(0)(send) if self.commits else send()

    def client(self, settled: Callable[[str], None] = lambda _: None) -> CatalogClient:
        return CatalogClient(cast("Catalog", self), settled)

    # -- troubles -------------------------------------------------------------------------------------------

    @staticmethod
    def answer_lost(send: Send) -> CommitTableResponse:
        send()
        raise requests.ReadTimeout(NO_ANSWER)

    @staticmethod
    def request_lost(_: Send) -> CommitTableResponse:
        raise requests.ReadTimeout(NO_ANSWER)

    @staticmethod
    def refused(_: Send) -> CommitTableResponse:
        raise CommitFailedException("Requirement failed: it was another request's")

    @staticmethod
    def repeated(send: Send) -> CommitTableResponse:
        """A proxy sends the request twice, and passes on the second answer."""
        send()
        return send()

    def held(self, send: Send) -> CommitTableResponse:
        """The request arrives when `arrive` says so."""
        self.late.append(send)
        raise requests.ReadTimeout(NO_ANSWER)

    def arrive(self) -> list[bool]:
        """Let all requests that are under way arrive; gives which of them took effect."""
        late, self.late = self.late, []
        return [took_effect(send) for send in late]

    @staticmethod
    def after(act: Callable[[], object]) -> Trouble:
        """Others act between the look and the commit."""

        def trouble(send: Send) -> CommitTableResponse:
            act()
            return send()

        return trouble


def took_effect(send: Send) -> bool:
    """Pyiceberg's own catalogs say ValueError of a snapshot whose number has been taken."""
    try:
        send()
    except (CommitFailedException, ValueError):
        return False
    return True


def passed(table: Table) -> Table:
    """A load that is true."""
    return table


def behind(table: Table) -> Callable[[Table], Table]:
    """A load of a replica that still shows this table."""
    return lambda _: table


def cut(table: Table) -> Table:
    """A load that shows where history was cut, as Iceberg for Java leaves it: what is left still names its parent."""
    snapshots = [
        each.model_copy(update={"parent_snapshot_id": each.parent_snapshot_id or 1})
        for each in table.metadata.snapshots
    ]
    metadata = table.metadata.model_copy(update={"snapshots": snapshots})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
