"""What a page shows of a dead letter holds nothing of it: whoever writes to a topic decides what a value looks like."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import cycle

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.observe.recent_activity import RecentActivity
from lakehouse_ingest.records import FAULT, Reason
from lakehouse_ingest.schema.columns import TOO_MANY, Aside, ColumnPlan, RefusedField, TablePlan, declared
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.formats import json_object as form
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import Faults, Records
from lakehouse_ingest.stages.routing import Router, row_numbers
from lakehouse_ingest.stages.rows import RowBuilder
from lakehouse_ingest.stages.transforms import Transformer, set_aside
from tests.stages.making import records_of

STRUCT = "struct<lat: double>"
TYPES = ("long", "int8", "double", "decimal(5,2)", "boolean", "date", "timestamptz", "list<long>", STRUCT)
COLUMNS = tuple(declared(f"c{number}", kind, required=False) for number, kind in enumerate(TYPES))
KEY = "Ann Smith 123-45-6789"  # a key that is data
REFUSED = (RefusedField((), KEY, TOO_MANY), RefusedField(("person",), KEY, TOO_MANY))
ODD = (ColumnPlan("ann_smith", "Ann\nSmith is no: 7", "long"), *COLUMNS)  # it has a column by now
PLAN = TablePlan("events", ODD, "c6", "iso")
STRICT = TablePlan("events", ODD, "c6", "iso", aside=Aside(refuses=True))
LOOKS = ["\n", ": ", " is no ", " is not long", '"', "'", "\\", "\u202e", "; "]  # like our own words
PIECES = ["Ann", "Smith", "123-45-6789", "käse", "漢字漢字", *LOOKS]
VALUES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=4, max_size=20
)
SCARCE = "the transform wants it so"


def shown(records: Records, *every: Faults) -> str:
    """All that the page and the logs are told of them."""
    activity = RecentActivity(clock=lambda: 0.0)
    told: list[str] = []
    for faults in every:
        activity.dead("s", dead_letters.samples(records, faults), PLAN.names)
        told += [fault.told for fault in faults.values()]
        told += [json.dumps(activity.report()["streams"]["s"]["samples"], ensure_ascii=False)] if faults else []
    return json.dumps(told, ensure_ascii=False)


def pieces(said: str) -> Iterator[str]:
    """Four letters or digits in a row, but for those that everything is shown as, and the columns' own names."""
    for word in re.findall(r"[^\W_]{4,}", said):
        yield from (four for at in range(len(word) - 3) if not {*(four := word[at : at + 4])} <= set("x0"))


def built(records: Records, plan: TablePlan, refused: Sequence[RefusedField] = ()) -> Faults:
    return RowBuilder(RoutePlan(plan, tuple(refused)), form).rows(records).faults


def astray(records: Records) -> Faults:
    stream = StreamSettings.model_validate({"topics": ["events"], "type_from": "field:c0"})
    return Router(stream, form).astray(records, row_numbers(len(records)))


def transformed(records: Records) -> Faults:
    """By a function that lets every text of the record into its details, and into columns of numbers."""

    def careless(rows: pa.Table) -> pa.Table:
        texts = rows["_record"].combine_chunks().field("value").cast(pa.string())
        rows = set_aside(rows, pc.equal(pc.bit_wise_and(rows["_row"], 1), 1), SCARCE)
        rows = rows.set_column(rows.schema.get_field_index("c0"), "c0", texts)
        said = pc.if_else(pc.equal(pc.bit_wise_and(rows["_row"], 3), 2), texts, None)
        return rows.set_column(rows.schema.get_field_index(FAULT), FAULT, pc.coalesce(rows[FAULT], said))

    text = declared("_", "string", required=False)
    sound = RowBuilder(RoutePlan(TablePlan("events", (*COLUMNS, text), None, "iso")), form).decoded(records)
    decoded, _ = Transformer(careless, (*COLUMNS, text)).applied(sound)
    return decoded.faults


# Ours: what is said to everybody.
WORDS = """
a field is missing is not no time in iso the value is not JSON UTF-8 empty something follows the JSON object where one
expected no object contract takes no such field entry of streams tables the topic with this type no type is found at
table has as many columns as max_columns allows the number is too large several values in one record levels deep
wrong_type out_of_range no_column no_table broken_json not_an_object missing_field wrong_event_time empty_value not_utf8
where detail value events null true false half a character such as ud83d without what follows what its column
set_aside the transform wants it so
"""


class TestShownDetail:
    @given(st.lists(VALUES, min_size=30, max_size=30), VALUES)
    def test_has_nothing_of_a_value_or_of_a_key_that_is_data(self, values: list[str], key: str) -> None:
        """Of a wrong type, out of range, without a column or a table: whatever the value looks like."""
        misfits = [{column.field: value} for column, value in zip(cycle(ODD), values, strict=False)]
        others = [{"person": {KEY: 1}}, {KEY: values[0]}, {key: {key: values[1]}, "c0": values[2]}, [{key: 1}], key]
        lines = [
            json.dumps(each, ensure_ascii=False) for each in (*misfits, *others, *({"_": each} for each in values))
        ]
        more = [*(f'"{value}' for value in values), "1e400", '{"c1": 4711, "c2": 1e999, "c3": 123456.789}']
        records = records_of([each.encode() for each in (*lines, *more)])
        found = (built(records, PLAN, REFUSED), built(records, STRICT), astray(records), transformed(records))
        reasons = {fault.reason for faults in found for fault in faults.values()}
        assert reasons >= {Reason.WRONG_TYPE, Reason.NO_TABLE, Reason.BROKEN, Reason.NO_COLUMN, Reason.SET_ASIDE}
        text, allowed = shown(records, *found), " ".join([*TYPES, TOO_MANY])
        for four in {*pieces(" ".join([KEY, key, *values]))} - {*pieces(WORDS)} - {*pieces(allowed)}:
            assert four not in text, (four, text)

    def test_names_a_column_only_if_it_is_one(self) -> None:
        records = records_of(
            [b'{"c0": "Ann Smith"}', b'{"Ann\\nSmith is no: 7": "x"}', b'{"c8": {"lat": "Ann"}, "c1": 4711}', b"Ann"]
        )
        found = built(records, PLAN)
        assert [found[row].told for row in range(4)] == [
            "c0 is not long",
            "a field is not long",
            "c8 is not struct",
            "the value is not JSON",
        ]
