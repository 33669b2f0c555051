"""Carries plans out while others read the table, write to it, and change it too."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from pyiceberg.table import Table
from pyiceberg.table.update import AssertLastAssignedFieldId

from catalog.changes import Add, Change, Describe, Fill, Relax, Repartition, Widen
from catalog.commits import ProposedCommit, Requirements, Updates, commit_loop, layout_is
from catalog.connection import CatalogClient
from catalog.errors import RequestRefused
from catalog.fences import Check, Expected, anybody, fenced, tries_of
from catalog.planning import Plan, additions, plan
from catalog.pyiceberg_internals import uncommitted_changes
from catalog.repartitioning import repartition
from catalog.specs import Column, TableState
from catalog.typenames import parse_type


def apply(
    client: CatalogClient, name: str, planned: Plan, expected: Expected | None = None, check: Check = anybody
) -> TableState:
    """Make the plan's changes in one commit; what the plan refuses is not touched.

    If others have changed the table since, it is planned again. What they did as well is left out, and nothing is done
    that the plan did not say. Raises RequestRefused for an objection, and for the plan of another table.
    With `expected`, only the writer whose fence is still where it left it may change the table; see `fenced`.
    """
    if name != planned.wanted.name:
        raise RequestRefused(f"the plan is of table {planned.wanted.name}, not of {name}")

    def still_to_do(state: TableState) -> Sequence[Change]:
        again = plan(state, planned.wanted, planned.contract)
        if again.objections:
            raise RequestRefused("; ".join(again.objections))
        return [each for each in again.changes if planned.covers(each)]

    return _change(client, name, "evolution", still_to_do, expected, check)


def add_columns(client: CatalogClient, name: str, columns: Sequence[tuple[str, Column]]) -> TableState:
    """Add the columns below the paths of their parents ("" is the table itself), all in one commit.

    A path leads through lists and maps by `element` and `value` (`items.element`, `tags.value`). A column that exists
    and takes the type stays as it is, so several writers may add the same one at once. Any other raises RequestRefused.
    """
    if required := next((column.name for _, column in columns if column.required), None):
        raise RequestRefused(
            f"adding columns to table {name}: {required} can't be required, because existing rows lack it; make it"
            " optional"
        )

    def still_to_do(state: TableState) -> Sequence[Change]:
        changes, refusals = additions(state, columns)
        if refusals:
            raise RequestRefused(f"adding columns to table {name}: {'; '.join(map(str, refusals))}")
        return changes

    return _change(client, name, "adding columns", still_to_do)


def _change(
    client: CatalogClient,
    name: str,
    what: str,
    still_to_do: Callable[[TableState], Sequence[Change]],
    expected: Expected | None = None,
    check: Check = anybody,
) -> TableState:
    required = fenced(name, what, expected, check)

    def attempt(table: Table, state: TableState) -> ProposedCommit | None:
        of_writer = required(state)
        with client.calling(f"{what} of table {name}"):
            changes = still_to_do(state)
            requirements, updates = _requests(table, changes)
        # All that the changes were planned for, whichever part of it they touch.
        planned_for = layout_is(state.schema_id, state.spec_id)
        return ProposedCommit((*requirements, *planned_for, *of_writer), updates) if changes else None

    return commit_loop(client, name, what, attempt, tries=tries_of(expected))


def _requests(table: Table, changes: Sequence[Change]) -> tuple[Requirements, Updates]:
    transaction = table.transaction()
    with transaction.update_schema() as update:
        for change in changes:
            match change:
                case Add(parent, column):
                    path = (parent, column.name) if parent else (column.name,)
                    update.add_column(
                        path, parse_type(column.type), doc=column.doc, default_value=cast(Any, column.default)
                    )
                case Widen(path, _, new):
                    update.update_column(path, field_type=parse_type(new))
                case Relax(path):
                    update.make_column_optional(path)
                case Describe(path, doc):
                    update.update_column(path, doc=doc)
                case Fill(path, value):
                    update.set_default_value(path, cast(Any, value))
    requirements, updates = uncommitted_changes(transaction)
    for change in changes:
        if isinstance(change, Repartition):
            more_requirements, more_updates = repartition(transaction.table_metadata, change.new)
            requirements, updates = (*requirements, *more_requirements), (*updates, *more_updates)
    # A schema that others changed and changed back has its old number, but field ids beyond those that we give.
    same_ids = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": table.metadata.last_column_id})
    return (*requirements, same_ids), updates
