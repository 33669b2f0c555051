"""The types that columns get from what was seen of their fields."""

import pyarrow as pa

from catalog import Contract, Rule
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.schema.arrow_types import arrow_type, iceberg_text
from lakehouse_ingest.schema.column_types import DEEPEST, are_names
from lakehouse_ingest.schema.columns import ELEMENT, ColumnPlan
from lakehouse_ingest.schema.seen import ISO, LIST, NUMBER, OBJECT, SIZES, USUAL_SHARE, SeenValues
from lakehouse_ingest.schema.times import PER_SECOND

ALL = Contract()  # a contract that lets every field become a column
JSON_TEXT = "string"
TEXT_TYPE = arrow_type(JSON_TEXT)


def column_type(
    seen: SeenValues,
    deepest: int = DEEPEST,
    path: tuple[str, ...] = (),
    contract: Contract = ALL,
    *,
    usual: bool = True,
) -> str | None:
    """The type for the values of a field; None if there was no value yet, only nulls and empty containers.

    `usual`: the kind of nearly all values decides. Within lists and objects all values have to be of one kind. Fields
    within that the contract doesn't let become columns are left out; `path` leads to this field.
    """
    found = _type(seen, seen.usual_kind if usual else seen.kind, deepest, path, contract)
    return None if found is None else iceberg_text(found)


def _type(
    seen: SeenValues, kind: str | None, deepest: int, path: tuple[str, ...], contract: Contract
) -> pa.DataType | None:
    """The type of the kind, if values of that kind hold anything. Text, if only others do, or if there is no kind."""
    found = {each: inner for each in seen.kinds if (inner := _of_kind(seen, each, deepest, path, contract)) is not None}
    return found.get(kind or "", TEXT_TYPE) if found else None


def _of_kind(
    seen: SeenValues, kind: str, deepest: int, path: tuple[str, ...], contract: Contract
) -> pa.DataType | None:
    if kind == NUMBER:
        return arrow_type(SIZES[max(1, *map(SIZES.index, seen.sizes))])
    if kind not in (LIST, OBJECT):
        return arrow_type(kind)
    found = _list(seen, deepest, path, contract) if kind == LIST else _object(seen, deepest, path, contract)
    return TEXT_TYPE if seen.cut or (found is not None and deepest <= 0) else found


def _list(seen: SeenValues, deepest: int, path: tuple[str, ...], contract: Contract) -> pa.DataType | None:
    element = seen.elements and _type(seen.elements, seen.elements.kind, deepest - 1, (*path, ELEMENT), contract)
    return element and pa.list_(element)


def _object(seen: SeenValues, deepest: int, path: tuple[str, ...], contract: Contract) -> pa.DataType | None:
    there = {name: each for name, each in sorted(seen.fields.items()) if contract.rule_of(*path, name) is Rule.EVOLVE}
    types = {name: _type(each, each.kind, deepest - 1, (*path, name), contract) for name, each in there.items()}
    found = [(name, kind) for name, kind in types.items() if kind is not None]
    if not found:
        return None
    return pa.struct(found) if are_names(there) else TEXT_TYPE


def unit_of(seen: SeenValues | None, column: ColumnPlan) -> str | None:
    """The unit that nearly all plausible event times in the column have; None if there are no event times."""
    if seen is None:
        return None
    texts = column.iceberg in ("string", "timestamptz", "date")
    numbers = column.iceberg not in ("date", "boolean", "binary") and "<" not in column.iceberg
    found = {unit: numbers * seen.epochs.get(unit, 0) + texts * seen.times.get(unit, 0) for unit in PER_SECOND}
    unit, most = max(found.items(), key=lambda each: each[1])
    if not most:
        return ISO if texts and seen.times.get(ISO) else None
    if most < USUAL_SHARE * sum(found.values()):
        alike = " and like ".join(unit for unit, count in found.items() if count)
        raise SettingsRefused(
            f"the event times in {column.field} look like {alike}: set `event_time_unit` to one of them"
        )
    return unit
