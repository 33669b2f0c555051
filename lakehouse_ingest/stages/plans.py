"""What a task knows of a route: the plan of its table, and how far the table may still follow the data."""

from dataclasses import dataclass

from catalog import FOLLOW, Contract
from lakehouse_ingest.schema.columns import RefusedField, TablePlan


@dataclass(frozen=True)
class Following:
    """How far a table may follow its data. Without it, it does not: its columns are declared."""

    contract: Contract = FOLLOW  # by the fields' own names, which may differ from those of their columns
    hinted: frozenset[str] = frozenset()  # fields whose type a person chose
    relaxing: frozenset[str] = frozenset()  # required fields that the contract lets become optional
    full: str = ""  # why the table gets no more columns, or not in this batch; then a field without one is no news
    final: bool = False  # true: the batch has changed the table as often as it may, so nothing is news any more


@dataclass(frozen=True)
class RoutePlan:
    """How the records of one route become rows of their table."""

    plan: TablePlan
    refused: tuple[RefusedField, ...] = ()  # fields that may not become columns, so they are no news
    following: Following | None = None
