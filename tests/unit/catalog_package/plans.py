"""Plans of a table's types, as the tests of planning write them."""

from collections.abc import Mapping

from catalog import Column, Contract, Plan, plan
from catalog.contracts import FOLLOW
from tests.services.schemas import spec_of, table_of


def planned(there: Mapping[str, str], wanted: Mapping[str, str], contract: Contract = FOLLOW, **table: object) -> Plan:
    """Types by column; `required` in front of a type, as within one."""
    return plan(table_of(columns(there), **table), spec_of(*columns(wanted)), contract)


def columns(types: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(
        Column(name, kind.removeprefix("required "), required=kind.startswith("required "))
        for name, kind in types.items()
    )
