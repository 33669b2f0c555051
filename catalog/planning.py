"""Plans what has to change for a table to take some data, and says what it can't take.

    found = plan(load(client, "iot.sensors"), TableSpec("iot.sensors", columns_of_the_data), Contract("widen"))
    found.changes, found.refusals, found.unfilled, found.objections

Plans are values, and nothing here talks to a catalog. New columns go behind the existing ones, in the order in which
they are wanted. They are optional at every depth, because existing rows lack them. Columns that the data lacks stay as
they are. A field whose name differs from a column's by case only is set aside.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.changes import Add, Change, Describe, Fate, FieldVerdict, Fill, Relax, Repartition, Widen
from catalog.column_defaults import filled
from catalog.contracts import FOLLOW, Contract, Rule, within
from catalog.fields import ELEMENT, VALUE, Path, columns_of, list_of, map_of, named, parts_of, struct_of
from catalog.partitions import misfits, same_partitions, shown, term_of
from catalog.schema_comparison import Comparison
from catalog.specs import Column, Sort, TableSpec, TableState
from catalog.typenames import parse_type

_FORMAT = "format-version"  # asked for as a property, but kept beside the properties
_NOTHING = "nothing to change"


@dataclass(frozen=True)
class Plan:
    """The changes that the contract allows, and what becomes of each wanted field."""

    wanted: TableSpec
    contract: Contract
    changes: tuple[Change, ...]
    verdicts: tuple[FieldVerdict, ...]
    lacking: tuple[str, ...]  # paths where the table needs a value and the data may have none
    objections: tuple[str, ...]  # why the table can't be used at all as it is wanted
    unfilled: tuple[str, ...] = ()  # why the table can't have some defaults; it can have their columns
    unplanned: tuple[str, ...] = ()  # what else differs from what is wanted, and stays as it is

    def covers(self, change: Change) -> bool:
        """Whether the plan has this change, or one that contains it: others may have done the rest meanwhile."""
        if isinstance(change, Repartition):
            return any(isinstance(each, Repartition) for each in self.changes)
        return any(not isinstance(each, Repartition) and within(change.path, each.path) for each in self.changes)

    @property
    def refusals(self) -> tuple[FieldVerdict, ...]:
        """The fields that the table will not take."""
        return tuple(each for each in self.verdicts if each.fate in {Fate.SET_ASIDE, Fate.REFUSE})

    def __str__(self) -> str:
        """Write one line for each change and refusal."""
        lacking = (f"{path}: the table needs a value, and the data may have none" for path in self.lacking)
        stays = [f"not as wanted, and no plan changes it: {', '.join(self.unplanned)}"] if self.unplanned else ()
        said = (*self.changes, *self.refusals, *lacking, *self.unfilled, *self.objections, *stays)
        return "\n".join(map(str, said)) or _NOTHING


def plan(current: TableState, wanted: TableSpec, contract: Contract = FOLLOW) -> Plan:
    """Compare a table with what is wanted, under the rules of the contract."""
    walk = Comparison(current, contract)
    walk.struct(struct_of(current.columns), struct_of(wanted.columns), ())
    changes: list[Change] = [*walk.changes]
    objections: list[str] = []
    unfilled: list[str] = []
    # Defaults are rare, and there may be thousands of columns.
    if any(column.default is not None for column in wanted.columns):
        now = evolved(current.columns, walk.changes)
        evolution, unfilled = filled(current, now, wanted.columns, walk.changes, contract)
        changes = [*evolution]
    if wanted.partitions is not None and not same_partitions(current.partitions, wanted.partitions):
        # Only a new layout is checked: the existing one was accepted when it was made.
        ever = (*current.partitions, *current.former)
        unfit = misfits(wanted.partitions, struct_of(evolved(current.columns, changes)), ever)
        objections += unfit
        if not unfit:
            if contract.partitions is Rule.EVOLVE:
                changes.append(Repartition(current.partitions, wanted.partitions))
            else:
                objections.append(
                    f"the table {current.name} is partitioned by {shown(current.partitions)}, not by"
                    f" {shown(wanted.partitions)}: change what is wanted, let partitions evolve, or name another table"
                )
    seen = (tuple(walk.verdicts), tuple(walk.lacking), tuple(objections))
    return Plan(wanted, contract, tuple(changes), *seen, tuple(unfilled), tuple(_unplanned(current, wanted)))


def _unplanned(current: TableState, wanted: TableSpec) -> Iterator[str]:
    """Name what a new table would get but no plan changes; where nothing is wanted, anything is accepted."""
    names = {column.name for column in current.columns}
    if wanted.sort and tuple(_spelled(sort, names) for sort in wanted.sort) != current.sort:
        yield f"the sort order [{', '.join(map(str, current.sort))}]"
    if wanted.identifier and {*wanted.identifier} != {*current.identifier}:
        yield f"the identifier [{', '.join(current.identifier)}]"
    there = {**current.properties, _FORMAT: str(current.format_version)}
    yield from (f"the property {key}" for key, text in wanted.all_properties.items() if there.get(key) != text)
    if wanted.location and wanted.location.rstrip("/") != current.location.rstrip("/"):
        yield f"the location {current.location}"


def _spelled(sort: Sort, names: Collection[str]) -> Sort:
    """Write the sort field as a table's own sort order has it; if it is no term, it is a column's name."""
    try:
        term = term_of(sort, names)
    except ValueError:
        return sort
    return replace(sort, column=term.column if term.transform == "identity" else str(term))


def additions(current: TableState, columns: Iterable[tuple[str, Column]]) -> tuple[tuple[Add, ...], tuple[str, ...]]:
    """Plan columns below the paths of structs ("" is the table): the missing ones, and why others can't be added.

    Existing columns stay as they are, and so do their doc strings, in which their authors may have described them.
    """
    walk = Comparison(current, Contract(max_columns=None, max_depth=None))
    wanted: dict[str, list[Column]] = {}
    for parent, column in columns:
        wanted.setdefault(parent, []).append(column)
    there = {".".join(path): (path, kind) for path, kind in parts_of(struct_of(current.columns), ())}
    missing = []
    for parent, below in wanted.items():
        path, kind = there.get(parent, ((), None))
        if isinstance(kind, StructType):
            walk.struct(kind, struct_of(below), path)
        else:
            missing.append(f"there is no struct {parent}")
    unfit = [
        f"column {each.path} is there as {each.current}, not as {each.wanted}"
        if each.current
        else f"column {each.path}: {each.reason}"
        for each in walk.verdicts
        if each.fate in {Fate.SET_ASIDE, Fate.WIDEN}
    ]
    return tuple(each for each in walk.changes if isinstance(each, Add)), (*missing, *unfit)


def evolved(columns: Sequence[Column], changes: Iterable[Change]) -> tuple[Column, ...]:
    """Give the columns as `apply` will leave them; a column that exists is not added again."""
    changes = tuple(changes)
    added = [change for change in changes if isinstance(change, Add)]
    widened = {change.path: change.new for change in changes if isinstance(change, Widen)}
    relaxed = {change.path for change in changes if isinstance(change, Relax)}
    docs = {change.path: change.doc for change in changes if isinstance(change, Describe)}

    def part(field: NestedField, path: Path) -> NestedField:
        text = ".".join(path)
        kind = parse_type(widened[text]) if text in widened else inner(field.field_type, path)
        return named(field.name, kind, docs.get(text, field.doc), required=field.required and text not in relaxed)

    def inner(kind: IcebergType, path: Path) -> IcebergType:
        match kind:
            case StructType():
                text = ".".join(path)
                there = {each.name for each in kind.fields}
                below = [each.column for each in added if each.parent == text and each.column.name not in there]
                new = struct_of(below).fields
                return StructType(*(part(each, (*path, each.name)) for each in kind.fields), *new)
            case ListType():
                return list_of(part(kind.element_field, (*path, ELEMENT)))
            case MapType():
                return map_of(kind.key_type, part(kind.value_field, (*path, VALUE)))
        return kind

    defaults = {change.column.name: change.column.default for change in added if not change.parent}
    defaults |= {column.name: column.default for column in columns}
    defaults |= {change.path: change.value for change in changes if isinstance(change, Fill)}
    return tuple(replace(each, default=defaults[each.name]) for each in columns_of(inner(struct_of(columns), ())))
