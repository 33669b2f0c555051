"""Whether the catalog enforces what our commits rely on: tried once for each way to publish, and then remembered.

Iceberg's protocol demands it, but a catalog may silently leave a check out, and then a start that was replaced could
still commit. So a pipeline tries it before its first start, on a table of its own that is dropped at once, and notes in
the batch log that all was well. The note is tried again after `DAYS`, because catalogs get other versions.

Who may create no table tries the checks on the batch log, with requests that each require something wrong. What that
leaves open, whether `main` and a branch move together, shows at the first commit: a start without its branch ends.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

import catalog
from catalog import TableState
from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.ledger.keys import ENFORCES
from lakehouse_ingest.tables.errors import NO_BRANCHES, explained, with_advice

DAYS = 30
USE_ANOTHER = "use a catalog that checks the requirements of a commit"
NOT_CREATED = "the catalog could not be tried on a table of its own, so its checks were tried on the batch log"
NOT_DROPPED = "the catalog was tried on a table that could not be dropped; drop it"


@dataclass(frozen=True)
class Proof:
    """What the batch log should remember of the catalog, and what a person should know."""

    notes: Mapping[str, str] = field(default_factory=dict)
    hindrance: str = ""


@dataclass(frozen=True)
class Enforcement:
    """How the catalog is tried, for one way to publish."""

    client: catalog.CatalogClient
    publish: str
    branch: str | None  # named as a start names its own; None with `publish = "direct"`, which relies on `main` alone
    creates: bool  # we may create tables

    def proven(self, log: TableState) -> Proof:
        """Raise if the catalog lacks a check that commits rely on. Asks nothing if the batch log says it has all."""
        key, today = f"{ENFORCES}{self.publish}", dt.datetime.now(dt.UTC).date()
        if _is_recent(log.properties.get(key, ""), today):
            return Proof()
        with explained():
            found, hindrance = self._tried(log, key)
        refuse_lax(found)
        return Proof({key: today.isoformat()}, hindrance or _not_dropped(found))

    def refuse(self, namespace: str) -> str:
        """Raise if the catalog lacks a check, whatever the batch log says. Returns what a person should know."""
        with explained():
            found = catalog.probe(self.client, namespace, self.branch)
        refuse_lax(found)
        return _not_dropped(found)

    def _tried(self, log: TableState, key: str) -> tuple[catalog.Abilities, str]:
        why = "`catalog.create` is off"
        if self.creates:
            try:
                return catalog.probe(self.client, log.name.rpartition(".")[0], self.branch), ""
            except catalog.NotLetIn:
                raise
            except (catalog.Denied, catalog.RequestRefused) as refusal:
                why = str(refusal)
        return catalog.probe_on(self.client, log.name, {key: ""}, self.branch), f"{NOT_CREATED}: {why}"


def refuse_lax(found: catalog.Abilities) -> None:
    """Raise if the catalog lacks anything."""
    if found.failures:
        more = f" (and {len(found.failures) - 1} more)" if len(found.failures) > 1 else ""
        kind, advice = (SettingsRefused, NO_BRANCHES) if found.main_suffices else (NeedsOperator, USE_ANOTHER)
        raise kind(with_advice(f"{found.failures[0]}{more}", advice))


def _not_dropped(found: catalog.Abilities) -> str:
    return f"{NOT_DROPPED}: {found.left}" if found.left else ""


def _is_recent(text: str, today: dt.date) -> bool:
    try:
        return 0 <= (today - dt.date.fromisoformat(text)).days < DAYS
    except ValueError:
        return False
