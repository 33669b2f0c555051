"""The fast decoder of JSON: it calls a record sound only if the reference decoder agrees in every value."""

import json
import os
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_ingest.schema.arrow_types import wire_type
from lakehouse_ingest.schema.columns import ColumnPlan, TablePlan
from lakehouse_ingest.stages.arrow.fitting import Fitted, Fitter
from lakehouse_ingest.stages.arrow.formats import ColumnarFormat
from lakehouse_ingest.stages.arrow.formats import json_object as json_format
from lakehouse_ingest.stages.arrow.plans import Following, RoutePlan
from lakehouse_ingest.stages.arrow.records import Fault
from tests.stages.json_records import columns_of, records_of

RECORDS = int(os.environ.get("LAKEHOUSE_TEST_RECORDS", "100000"))  # ten million in the long form
AT_ONCE = 5_000


def fitter_of(columns: Sequence[ColumnPlan]) -> Fitter:
    """One for which everything that the columns don't take is a fault or news."""
    return Fitter(RoutePlan(TablePlan("t", tuple(columns), None, "iso"), following=Following()))


def fitted(record: bytes, fitter: Fitter) -> Fitted | None:
    """What the record is by the reference decoder; None if it is not sound."""
    found = json_format.tree(record)
    if isinstance(found, Fault):
        return None
    done = fitter.fit(found)
    return None if done.fault or done.rescued or done.news else done


def bits(values: pa.Array) -> pa.Array:
    """The same values, but 0.0 and -0.0 are two."""
    same = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(values.type)
    return values.view(same) if same else values


def disagreements(columns: Sequence[ColumnPlan], records: Sequence[bytes]) -> tuple[list[str], int, int]:
    """The sound records that the reference decoder reads otherwise; how many are sound, by each of the two."""
    data, sound = json_format.columns(pa.array(records, pa.binary()), columns)
    assert len(data) == len(sound) == len(records)
    fitter = fitter_of(columns)
    exact = [fitted(each, fitter) for each in records]
    numbers = [number for number, each in enumerate(sound.to_pylist()) if each]
    wrong = [f"not sound: {records[number]!r}" for number in numbers if exact[number] is None]
    agreed = [(number, found.values) for number in numbers if (found := exact[number])]
    for place, column in enumerate(columns):
        kind = wire_type(column)
        wanted = bits(pa.array([values[place] for _, values in agreed], kind))
        got = bits(data.field(place).take(pa.array([number for number, _ in agreed], pa.int64())))
        if not got.equals(wanted):
            pairs = zip(agreed, got.to_pylist(), wanted.to_pylist(), strict=True)
            wrong += [
                f"{column.field} is {one} but should be {other}: {records[number]!r}"
                for (number, _), one, other in pairs
                if one != other or str(one) != str(other)
            ] or [f"{column.field} differs"]
    return wrong, len(numbers), sum(each is not None for each in exact)


class TestRandomRecords:
    def test_agree_with_the_reference_decoder(self) -> None:
        fast = exact = 0
        for seed in range(RECORDS // AT_ONCE):
            dice = random.Random(seed)
            columns = columns_of(dice)
            records = records_of(columns, dice, AT_ONCE, damaged=dice.choice([0.01, 0.5, 0.9]))
            wrong, of_fast, of_exact = disagreements(columns, records)
            assert not wrong, f"seed {seed}: {len(wrong)}, such as {wrong[:3]}"
            fast, exact = fast + of_fast, exact + of_exact
        assert fast > 0.9 * exact, "the fast decoder leaves too much to the reference decoder"
