"""What `partition_by` means: parts of the time in Hive's way, and what is refused in one sentence."""

from typing import Any

import pytest

from catalog import Partition
from lakehouse_ingest import planning
from lakehouse_ingest.errors import LONGEST as LONGEST_SENTENCE
from lakehouse_ingest.errors import LakehouseError, SettingsRefused
from lakehouse_ingest.settings import TableSettings


def settings(*partitions: str, **others: Any) -> TableSettings:
    return TableSettings.model_validate({"partition_by": partitions, **others})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["year"], ["year(event_time)"]),
        (["year", "month"], ["month(event_time)"]),
        (["location", "year", "month", "day"], ["location", "day(event_time)"]),
        (["year", "location", "month", "day", "hour"], ["hour(event_time)", "location"]),
        (["day(event_time)", "void(location)"], ["day(event_time)", "void(location)"]),
        (["year as of_record"], ["year as of_record"]),
        ([], []),
    ],
)
def test_parts_of_the_time_are_one_hidden_partition_of_the_finest(written: list[str], meant: list[str]) -> None:
    assert planning.partitions_of(settings(*written)) == tuple(map(Partition.parse, meant))
    assert planning.derived_of(settings(*written)) == ()


def test_in_directories_each_part_is_a_column_of_its_own() -> None:
    wanted = settings("location", "year", "month", hive_directories=True)
    assert planning.partitions_of(wanted) == (Partition("location"), Partition("year"), Partition("month"))
    assert planning.derived_of(wanted) == ("year", "month")


@pytest.mark.parametrize("written", [["hour"], ["year", "day"], ["month", "year"], ["year", "year"]])
def test_what_is_no_chain_from_the_year_on_is_refused(written: list[str]) -> None:
    with pytest.raises(SettingsRefused, match=rf"or write {written[-1]}\(event_time\)") as refusal:
        planning.partitions_of(settings(*written))
    assert len(str(refusal.value)) <= LONGEST_SENTENCE


def test_a_declared_column_of_that_name_is_refused() -> None:
    declared = settings("year", columns=[{"name": "year", "type": "int"}])
    with pytest.raises(SettingsRefused, match=r"have a field year of their own: write year\(event_time\)") as refusal:
        planning.plan_from_settings("t", declared)
    assert len(str(refusal.value)) <= LONGEST_SENTENCE
    assert isinstance(refusal.value, LakehouseError)
