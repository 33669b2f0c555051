"""Fits the fields of one record to the columns of its table, exactly. What is fast elsewhere is held against this.

A number becomes text if the column is text, and so do objects and lists. Nothing else is converted: "12" is not a
number, and 1.0 is not an integer. A binary column takes Base64.

A value that does not fit is a fault, unless the table's contract rescues it. A field is rescued with its whole value as
soon as anything of the value has no place in the column: there is no column, the value is of another type, or something
inside it has no place. What has a place is in the column all the same.

`null`, `[]` and `{}`, and values made only of these, count as nothing where there is no column for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog import Rule
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import ELEMENT, EVENT_TIME, HINTED, VALUE, ColumnPlan
from lakehouse_ingest.stages import leaves
from lakehouse_ingest.stages.faults import SHOWN, misfit_told
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import Fault, Tree, Value
from lakehouse_ingest.stages.trees import holds, json_text

DECODE, RESCUE = "decode", "rescue"
NAMED_IN_DETAIL = 50  # misfits of one record that its fault names
NOT_TAKEN = "the table's contract takes no such field"
TOO_OFTEN = "this batch has changed the table's columns as often as it may"


@dataclass(slots=True)
class Fitted:
    """What became of one record."""

    values: list[Any]  # one for each column, as Arrow makes its wire type of it
    fault: Fault | None = None
    rescued: dict[str, str] = field(default_factory=dict)  # fields for `_rescued`, as JSON
    news: bool = False  # the table may change so that it takes more of this record


@dataclass(slots=True)
class _Found:
    """What was found in the field that is being read."""

    dirty: bool = False  # there is anything below
    misfit: Reason | None = None  # a value that does not fit, and is not rescued
    kept: bool = False  # a part that is to be rescued
    news: bool = False
    no_column: Fault | None = None


Fit = Callable[[Any, _Found], Any]
Misfit = Callable[[Any, _Found, Reason], Any]  # always None, so that it can be returned
Unknown = Callable[[str, Value, _Found], None]
Path = tuple[str, ...]


class Fitter:
    """Fits records to the columns of one plan."""

    def __init__(self, route: RoutePlan) -> None:
        plan, following = route.plan, route.following
        compiler = _Compiler(route)
        self._columns = plan.columns
        self._fits = {each.field: (number, compiler.column(each)) for number, each in enumerate(plan.columns)}
        self._unknown = compiler.unknown((), ())
        may_relax = following is not None and not following.final
        self._relaxing = [
            number
            for number, each in enumerate(plan.columns)
            if may_relax and following and each.required and each.field in following.relaxing
        ]

    def fit(self, tree: Tree) -> Fitted:
        values: list[Any] = [None] * len(self._columns)
        done, found = Fitted(values), _Found()
        misfits: list[tuple[int, Reason]] = []
        no_column: Fault | None = None
        fits = self._fits
        for name, value in tree.items():
            if value is None:
                continue
            known = fits.get(name)
            if known is None:
                self._unknown(name, value, found)
            else:
                number, fit = known
                values[number] = fit(value, found)
            if found.dirty:
                if found.misfit and known:
                    misfits.append((known[0], found.misfit))
                no_column = no_column or found.no_column
                done.news |= found.news
                if found.kept:
                    done.rescued[name] = json_text(value)
                found = _Found()
        done.news |= any(tree.get(self._columns[number].field) is None for number in self._relaxing)
        done.fault = self._misfit(tree, sorted(misfits)) if misfits else no_column
        return done

    def _misfit(self, tree: Tree, misfits: list[tuple[int, Reason]]) -> Fault:
        """The reason of the first, and the words of all."""
        columns = [self._columns[number] for number, _ in misfits[:NAMED_IN_DETAIL]]
        detail = "; ".join(f"{each.field}: {_shown(tree[each.field])} is not {each.takes}" for each in columns)
        return Fault(misfits[0][1], detail, DECODE, "; ".join(map(misfit_told, columns)))


def _shown(value: Value) -> str:
    return (f'"{value[:SHOWN]}"' if isinstance(value, str) else json_text(value))[:SHOWN]


class _Compiler:
    """Makes a function for each type in a plan, which knows what its contract says of the values there."""

    def __init__(self, route: RoutePlan) -> None:
        self._aside, self._following = route.plan.strict, route.following
        self._refused: dict[tuple[str | None, ...], dict[str, str]] = {}
        for each in route.refused:
            self._refused.setdefault(each.within, {})[each.name] = each.why

    def column(self, column: ColumnPlan) -> Fit:
        follows, path = self._following, (column.field,)
        widens = bool(follows and not follows.final and column.low is None and column.name != EVENT_TIME)
        widens = widens and bool(follows and column.field not in follows.hinted)
        kind = arrow_type(column.iceberg)
        if not pa.types.is_nested(kind):
            return leaves.column_leaf(column, kind, self._misfit(path, leaves.wider_of(kind), widens=widens))
        return self._fit(kind, path, path, widens)

    def _fit(self, kind: Any, path: Path, where: tuple[str | None, ...], widens: bool) -> Fit:  # noqa: FBT001
        """`path` is of the columns, with words for elements and values; `where` leads through the record."""
        misfit = self._misfit(path, leaves.wider_of(kind), widens=widens)
        if pa.types.is_struct(kind):
            fields = [kind.field(number) for number in range(kind.num_fields)]
            inner = {
                each.name: self._fit(each.type, (*path, each.name), (*where, each.name), widens) for each in fields
            }
            return _struct(inner, self.unknown(path, where), misfit)
        if pa.types.is_list(kind):
            return _list(self._fit(kind.value_type, (*path, ELEMENT), (*where, None), widens), misfit)
        if pa.types.is_map(kind):
            inside = self._fit(kind.item_type, (*path, VALUE), (*where, None), widens)
            return _map(inside, misfit) if pa.types.is_string(kind.key_type) else _nothing(misfit)
        return leaves.inner_leaf(kind, misfit)

    def _misfit(self, path: Path, wider: Callable[[Any], bool] | None, *, widens: bool) -> Misfit:
        aside, follows = self._aside, self._following
        is_strict = aside is None or aside.refused(path)
        widens = widens and wider is not None and bool(follows and follows.contract.rule_of(*path).widens)

        def misfit(value: Any, found: _Found, reason: Reason) -> None:
            if aside is not None and not holds(value):
                return
            found.dirty = True
            if widens and wider and wider(value):
                found.news = True
            elif is_strict:
                found.misfit = found.misfit or reason
            else:
                found.kept = True

        return misfit

    def unknown(self, path: Path, where: tuple[str | None, ...]) -> Unknown:
        """What becomes of a field for which the object at this path has no place."""
        aside, follows, refused = self._aside, self._following, self._refused.get(where, {})
        is_hinted = bool(path and follows and path[0] in follows.hinted)
        way = "".join("[]." if key is None else f"{key}." for key in where).replace(".[]", "[]")

        def unknown(name: str, value: Value, found: _Found) -> None:
            if not holds(value):
                return
            why = refused.get(name)
            if why is None and follows and self._may_grow(value, (*path, name)):
                why = HINTED if is_hinted else TOO_OFTEN if follows.final else follows.full or None
                if why is None:
                    found.dirty = found.news = True
                    return
            if aside is None and why is None:
                return
            found.dirty = True
            if aside is None:
                no_column = Fault(Reason.NO_COLUMN, f"{way}{name[:SHOWN]}: {why}", DECODE, f"a field: {why}")
            elif aside.refused((*path, name)):
                why, top = why or NOT_TAKEN, path[0] if path else name
                no_column = Fault(Reason.NO_COLUMN, f"{top[:SHOWN]}: {why}", RESCUE, f"a field: {why}")
            else:
                found.kept = True
                return
            found.no_column = found.no_column or no_column

        return unknown

    def _may_grow(self, value: Value, path: Path) -> bool:
        """Whether the contract lets a column be made for anything in this value."""
        assert self._following
        contract = self._following.contract
        if not contract.columns:
            return contract.rule is Rule.EVOLVE
        return contract.rule_of(*path) is Rule.EVOLVE and self._may_hold(value, path)

    def _may_hold(self, value: Value, path: Path) -> bool:
        assert self._following
        rule_of = self._following.contract.rule_of
        match value:
            case dict():
                return any(
                    rule_of(*path, name) is Rule.EVOLVE and self._may_hold(each, (*path, name))
                    for name, each in value.items()
                )
            case list():
                return any(self._may_hold(each, (*path, ELEMENT)) for each in value)
        return value is not None


def _struct(fits: Mapping[str, Fit], unknown: Unknown, misfit: Misfit) -> Fit:
    def fit(value: Any, found: _Found) -> Any:
        if not isinstance(value, dict):
            return misfit(value, found, Reason.WRONG_TYPE)
        fitted = {}
        for name, each in value.items():
            if each is not None:
                if (inner := fits.get(name)) is None:
                    unknown(name, each, found)
                else:
                    fitted[name] = inner(each, found)
        return fitted

    return fit


def _list(inner: Fit, misfit: Misfit) -> Fit:
    def fit(value: Any, found: _Found) -> Any:
        if not isinstance(value, list):
            return misfit(value, found, Reason.WRONG_TYPE)
        return [None if each is None else inner(each, found) for each in value]

    return fit


def _map(inner: Fit, misfit: Misfit) -> Fit:
    def fit(value: Any, found: _Found) -> Any:
        if not isinstance(value, dict):
            return misfit(value, found, Reason.WRONG_TYPE)
        return [(key, None if each is None else inner(each, found)) for key, each in value.items()]

    return fit


def _nothing(misfit: Misfit) -> Fit:
    """For a map whose keys are no text: no field of a record fits."""
    return lambda value, found: misfit(value, found, Reason.WRONG_TYPE)
