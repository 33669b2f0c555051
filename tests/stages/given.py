"""Records in memory, and rows made of them with and without the fast decoder."""

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakehouse_ingest.schema.columns import TablePlan
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.formats import json_object as json_format
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Tree
from lakehouse_ingest.stages.rows import RowBuilder, Shaped

RECEIVED = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)  # when the broker took every record

Value = str | bytes | None


class Exact:
    """JSON without its fast decoder."""

    def tree(self, value: bytes | None) -> Tree | Fault:
        return json_format.tree(value)

    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        return json_format.field(values, path)


FORMATS: dict[str, Format] = {"fast": json_format, "exact": Exact()}


def records(values: Sequence[Value]) -> Records:
    """Values as records of one partition, their offsets in the order given."""
    columns = {
        "offset": range(len(values)),
        "timestamp": [RECEIVED] * len(values),
        "key": [None] * len(values),
        "value": [each.encode() if isinstance(each, str) else each for each in values],
        "headers": [None] * len(values),
    }
    rows = [pa.array(columns[each.name], each.type) for each in RECORD_SCHEMA]
    return Records("events", 0, "log", pa.RecordBatch.from_arrays(rows, schema=RECORD_SCHEMA))


def shaped(values: Sequence[Value], route: TablePlan | RoutePlan, form: Format = json_format) -> Shaped:
    builder = RowBuilder(route if isinstance(route, RoutePlan) else RoutePlan(route), form)
    made = builder.rows(records(values))
    made.rows.validate(full=True)
    found = [*made.numbers.to_pylist(), *made.faults, *made.news]
    assert sorted(found) == list(range(len(values))), "each record is in exactly one place"
    assert made.numbers.to_pylist() == sorted(made.numbers.to_pylist())
    return made


Outcome = dict[str, Any] | Fault | None


def outcomes(values: Sequence[Value], route: TablePlan | RoutePlan, form: Format = json_format) -> list[Outcome]:
    """For each record its row, its fault, or None if it is news."""
    made = shaped(values, route, form)
    rows = dict(zip(made.numbers.to_pylist(), made.rows.to_pylist(), strict=True))
    return [rows.get(number) or made.faults.get(number) for number in range(len(values))]


def one(name: str, text: str) -> str:
    return f"{{{json.dumps(name)}: {text}}}"


def texts(values: Sequence[Any]) -> list[str]:
    return [each if isinstance(each, str) else json.dumps(each) for each in values]
