"""What `partition_by` means: parts of the time in Hive's way, and what is refused in one sentence."""

from typing import Any

import pytest

from catalog import Column, Partition
from lakehouse_ingest.errors import LONGEST as LONGEST_SENTENCE
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TableChanged
from lakehouse_ingest.schema import layout, table_plans
from lakehouse_ingest.schema.table_plans import plan_from_settings
from lakehouse_ingest.settings import TableSettings
from tests.services.schemas import table_of


def settings(*partitions: str, **others: Any) -> TableSettings:
    return TableSettings.model_validate({"partition_by": partitions, **others})


class TestPartitionBy:
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
    def test_of_time_parts_is_one_hidden_partition_of_the_finest(self, written: list[str], meant: list[str]) -> None:
        assert layout.partitions_of(settings(*written)) == tuple(map(Partition.parse, meant))
        assert layout.derived_of(settings(*written)) == ()

    def test_in_hive_directories_has_a_column_for_each_part(self) -> None:
        wanted = settings("location", "year", "month", hive_directories=True)
        assert layout.partitions_of(wanted) == (Partition("location"), Partition("year"), Partition("month"))
        assert layout.derived_of(wanted) == ("year", "month")

    @pytest.mark.parametrize("written", [["hour"], ["year", "day"], ["month", "year"], ["year", "year"]])
    def test_that_does_not_begin_with_the_year_is_refused(self, written: list[str]) -> None:
        with pytest.raises(SettingsRefused, match=rf"or write {written[-1]}\(event_time\)") as refusal:
            layout.partitions_of(settings(*written))
        assert len(str(refusal.value)) <= LONGEST_SENTENCE

    def test_with_year_is_refused_beside_a_column_of_that_name(self) -> None:
        declared = settings("year", columns=[{"name": "year", "type": "int"}])
        with pytest.raises(
            SettingsRefused, match=r"have a field year of their own: write year\(event_time\)"
        ) as refusal:
            plan_from_settings("t", declared)
        assert len(str(refusal.value)) <= LONGEST_SENTENCE
        assert isinstance(refusal.value, LakehouseError)


class TestExistingTable:
    @pytest.mark.parametrize("kind", ["uuid", "time", "fixed[4]", "struct<at: time>", "list<timestamptz_ns>"])
    def test_with_a_type_that_we_do_not_write_is_refused(self, kind: str) -> None:
        with pytest.raises(TableChanged, match=r"the column id of n\.t is .*, a type that this program does not write"):
            table_plans.plan_from_table(table_of((Column("id", kind),)), settings(event_time_unit="ms"))

    @pytest.mark.parametrize(
        ("kind", "needs"),
        [
            ("struct<lat: required double>", True),
            ("list<required long>", True),
            ("map<string, required int>", True),
            ("struct<required: int>", False),
            ('struct<"required x": int "required y">', False),
            ("struct<at: timestamp, tags: map<string, list<decimal(9,2)>>>", False),
        ],
    )
    def test_with_required_fields_inside_a_column_is_refused(self, kind: str, needs: bool) -> None:  # noqa: FBT001 - a case
        there, wanted = table_of((Column("place", kind, required=True),)), settings(event_time_unit="ms")
        if needs:
            with pytest.raises(TableChanged, match=r"the column place of .* has required fields inside"):
                table_plans.plan_from_table(there, wanted)
        else:
            plan = table_plans.plan_from_table(there, wanted)
            assert plan
            assert plan.columns[0].required

    def test_with_a_partition_named_like_our_column_is_refused(self) -> None:
        state = table_of((Column("ts", "timestamptz"),), former=(Partition("ts", "day", "event_time"),))
        plan = table_plans.plan_from_table(state, settings(event_time_unit="ms"))
        assert plan
        with pytest.raises(
            TableChanged, match=r"n\.t needs a column event_time, .* a partition field of that name"
        ) as told:
            table_plans.additions(state, plan, settings("ts"))
        assert len(str(told.value)) <= LONGEST_SENTENCE
