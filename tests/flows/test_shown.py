"""What a page shows of a dead letter holds nothing of it: whoever writes to a topic decides what a value looks like."""

import json
import re
from collections.abc import Iterator
from functools import reduce
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.observe.recent_activity import RecentActivity
from lakehouse_ingest.records import FAULT, RECORD, Reason
from lakehouse_ingest.schema.columns import TOO_MANY, Aside, ColumnPlan, RefusedField, TablePlan, declared
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import dead_letters, rescue
from lakehouse_ingest.stages.faults import faulty
from lakehouse_ingest.stages.formats import json_object
from lakehouse_ingest.stages.routing import astray
from lakehouse_ingest.stages.shaping import shape
from tests.flows.conftest import FEW, Records

STRUCT = "struct<lat: double>"
TYPES = ("long", "int8", "double", "decimal(5,2)", "boolean", "date", "timestamptz", "list<long>", STRUCT)
COLUMNS = tuple(declared(f"c{number}", kind, required=False) for number, kind in enumerate(TYPES))
KEY = "Ann Smith 123-45-6789"  # a key that is data
REFUSED = (RefusedField((), KEY, TOO_MANY), RefusedField(("person",), KEY, TOO_MANY))
ODD = (ColumnPlan("ann_smith", "Ann\nSmith is no: 7", "long"), *COLUMNS)  # it has a column by now
PLAN = TablePlan("events", ODD, "c6", "iso")
LOOKS = ["\n", ": ", " is no ", " is not long", '"', "'", "\\", "\u202e", "; "]  # like our own words
PIECES = ["Ann", "Smith", "123-45-6789", "käse", "漢字漢字", *LOOKS]
VALUES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=4, max_size=20
)


def shown(rows: DataFrame) -> str:
    """All that the page is told of them."""
    sampled, found = dead_letters.sampled(rows)
    told = {row[FAULT]["told"] for row in sampled.where(F.col(FAULT).isNotNull()).collect()}
    activity = RecentActivity(clock=lambda: 0.0)
    activity.dead("s", found(), PLAN.names)
    return json.dumps([*told, activity.report()["streams"]["s"]["samples"]], ensure_ascii=False)


def pieces(said: str) -> Iterator[str]:
    """Four letters or digits in a row, but for those that everything is shown as, and the columns' own names."""
    for word in re.findall(r"[^\W_]{4,}", said):
        yield from (four for at in range(len(word) - 3) if not {*(four := word[at : at + 4])} <= set("x0"))


@settings(FEW, max_examples=2)
@given(st.lists(VALUES, min_size=30, max_size=30), VALUES)
def test_nothing_of_a_value_or_of_a_key_that_is_data_is_shown(records: Records, values: list[str], key: str) -> None:
    """Of a wrong type, out of range, without a column or a table: whatever the value looks like."""
    misfits = [{column.field: value} for column, value in zip(cycle(ODD), values, strict=False)]
    others = [{"person": {KEY: 1}}, {KEY: values[0]}, {key: {key: values[1]}, "c0": values[2]}, [{key: 1}], key]
    lines = [json.dumps(each, ensure_ascii=False) for each in (*misfits, *others)]
    rows = records([*lines, *(f'"{value}' for value in values), "1e400", '{"c1": 4711, "c2": 1e999, "c3": 123456.789}'])
    decoded = shape(json_object.decode(rows, ODD, REFUSED), PLAN)
    lenient = rescue.set_aside(json_object.lenient(rows, ODD), ODD, Aside(refuses=True), beyond=True)
    stream = StreamSettings.model_validate({"topics": ["events"], "type_from": "field:c0"})
    allowed = " ".join([*TYPES, TOO_MANY])
    frames = (decoded, lenient, astray(rows, stream, json_object.field))
    text = shown(reduce(DataFrame.unionAll, (each.select(RECORD, FAULT) for each in frames)))
    for four in {*pieces(" ".join([KEY, key, *values]))} - {*pieces(WORDS)} - {*pieces(allowed)}:
        assert four not in text, (four, text)


# Ours: what is said to everybody.
WORDS = """
a field is missing is not no time in iso the value is not JSON UTF-8 empty something follows the JSON object where one
expected no object contract takes no such field entry of streams tables the topic with this type no type is found at
table has as many columns as max_columns allows the number is too large several values in one record levels deep
wrong_type out_of_range no_column no_table broken_json not_an_object missing_field wrong_event_time empty_value not_utf8
where detail value events null true false half a character such as ud83d without what follows what its column
"""


def test_the_name_of_a_column_is_shown_where_it_is_one(records: Records) -> None:
    rows = records(
        ['{"c0": "Ann Smith"}', '{"Ann\\nSmith is no: 7": "x"}', '{"c8": {"lat": "Ann"}, "c1": 4711}', "Ann"]
    )
    found = [row[FAULT]["told"] for row in json_object.decode(rows, ODD).orderBy("_record.offset").collect()]
    assert found == ["c0 is not long", "a field is not long", "c8 is not struct", "the value is not JSON"]


def test_words_of_another_formats_fault_are_shown_only_if_it_says_so(records: Records) -> None:
    """By default a detail may hold anything."""
    rows = records(["{}"]).withColumn(FAULT, faulty(Reason.BROKEN, F.lit("Ann Smith"), "decode"))
    assert "Smith" not in shown(rows)
