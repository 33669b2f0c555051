"""Plans carried out, while others read the table, write to it, and change it as well."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from pyiceberg.table import Table
from pyiceberg.table.update import AssertLastAssignedFieldId

from catalog.changes import Add, Change, Describe, Fill, Relax, Repartition, Widen
from catalog.commits import Requirements, Updates, commit
from catalog.connection import Lake
from catalog.conversions import state_of
from catalog.errors import Conflict, OutcomeUnknown, Refused
from catalog.planning import Plan, additions, plan
from catalog.repartitioning import repartition
from catalog.retries import patiently
from catalog.specs import Column, TableState
from catalog.typenames import parse_type


def apply(lake: Lake, name: str, planned: Plan) -> TableState:
    """Make the plan's changes in one commit; what it refuses is not touched, and an objection is Refused.

    Where others have changed the table since, it is planned again: what they did too is left out, and nothing is
    done that the plan did not say. A plan of another table is Refused.
    """
    if name != planned.wanted.name:
        raise Refused(f"the plan is of table {planned.wanted.name}, not of {name}")

    def still_to_do(state: TableState) -> Sequence[Change]:
        again = plan(state, planned.wanted, planned.contract)
        if again.objections:
            raise Refused("; ".join(again.objections))
        return [each for each in again.changes if planned.covers(each)]

    return _change(lake, name, "evolution", still_to_do)


def add_columns(lake: Lake, name: str, columns: Sequence[tuple[str, Column]]) -> TableState:
    """Add the columns below the paths of their parents ("" is the table itself), all in one commit.

    A path leads through lists and maps by `element` and `value` (`items.element`, `tags.value`). A column that is there
    and takes the type is no error, and stays as it is; any other is Refused. So many may add the same at once.
    """
    if required := next((column.name for _, column in columns if column.required), None):
        raise Refused(
            f"adding columns to table {name}: {required} can't be required, for the rows that are there lack it"
        )

    def still_to_do(state: TableState) -> Sequence[Change]:
        changes, refusals = additions(state, columns)
        if refusals:
            raise Refused(f"adding columns to table {name}: {'; '.join(map(str, refusals))}")
        return changes

    return _change(lake, name, "adding columns", still_to_do)


def _change(lake: Lake, name: str, what: str, still_to_do: Callable[[TableState], Sequence[Change]]) -> TableState:
    for last in patiently():
        table = lake.table(name)
        state = state_of(table)
        with lake.calling(f"{what} of table {name}"):
            changes = still_to_do(state)
            if not changes:
                return state
            requirements, updates = _requests(table, changes)
        try:
            return commit(lake, table, what, requirements, updates)
        except (Conflict, OutcomeUnknown):
            # Another may have done the same, or ours was heard without an answer: the next look tells.
            if last:
                raise
    raise AssertionError


def _requests(table: Table, changes: Sequence[Change]) -> tuple[Requirements, Updates]:
    staged = table.transaction()
    with staged.update_schema() as update:
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
    requirements, updates = staged._requirements, staged._updates  # noqa: SLF001 - the public way commits by itself
    for change in changes:
        if isinstance(change, Repartition):
            more_requirements, more_updates = repartition(staged.table_metadata, change.new)
            requirements, updates = (*requirements, *more_requirements), (*updates, *more_updates)
    # A schema that went forth and back would have its old number, and ids beyond those that we give.
    same_ids = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": table.metadata.last_column_id})
    return (*requirements, same_ids), updates
