"""What stops a start, and which tables may hold rows beyond where it begins."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SourceChanged, TableChanged
from lakehouse_ingest.records import SourceIdentity
from lakehouse_ingest.resume.start_offsets import same_tables, uncertain
from lakehouse_ingest.tables import Registered
from tests.unit.starts import NEVER, NOW, RECORD, at, begin, place


class TestSource:
    @pytest.mark.parametrize("where", ["record", "table"])
    def test_with_a_recreated_topic_stops_the_start(self, where: str) -> None:
        old = SourceIdentity("cluster-1", {"t": "id-0"})
        record = place("record", at(5, 5), source=old) if where == "record" else NEVER
        table = place("t", at(5, 5), source=old) if where == "table" else place("t")
        with pytest.raises(
            SourceChanged, match=r"topic t was deleted and recreated \(id id-0 is now id-1\).*ingest recover`"
        ):
            begin(record, [table], NOW, "earliest")

    def test_of_another_cluster_stops_the_start(self) -> None:
        other = place("record", at(5, 5), source=SourceIdentity("cluster-0", {"t": "id-1"}))
        with pytest.raises(SourceChanged, match=r"cluster cluster-0, this one is cluster-1.*`source.brokers`"):
            begin(other, [], NOW, "earliest")

    @pytest.mark.parametrize("then", [SourceIdentity(), SourceIdentity("cluster-1"), SourceIdentity("", {"t": ""})])
    def test_without_ids_is_compared_by_name_only(self, then: SourceIdentity) -> None:
        assert begin(place("record", at(5, 5), source=then), [], NOW, "earliest") == at(5, 5)

    @pytest.mark.parametrize("ahead", ["record", "table"])
    def test_whose_end_went_back_stops_the_start(self, ahead: str) -> None:
        """Also when only one table got so far: its rows came from records that are no more."""
        record = place("record", at(1001, 5)) if ahead == "record" else RECORD
        table = place("t", at(1001, 5), at(5, 5)) if ahead == "table" else place("t")
        with pytest.raises(SourceChanged, match="partition 0 ends at offset 1000, the tables hold it up to 1001"):
            begin(record, [table], NOW, "earliest")

    def test_whose_end_is_just_reached_is_fine(self) -> None:
        assert begin(place("record", at(1000, 1000)), [], NOW, "earliest") == at(1000, 1000)

    def test_that_stops_the_start_is_for_an_operator(self) -> None:
        assert issubclass(SourceChanged, NeedsOperator)
        assert issubclass(LedgerUnclear, NeedsOperator)


class TestRetention:
    def test_that_passed_us_stops_with_the_range_that_is_lost(self) -> None:
        now = replace(NOW, low=at(0, 520))
        with pytest.raises(SourceChanged, match=r"partition 1 has lost the offsets 500 to 519 .*\(retention\)"):
            begin(RECORD, [], now, "earliest")

    def test_that_passed_the_dead_letters_but_not_the_table_stops(self) -> None:
        """The table holds up to 600, but of the dead letters between 500 and 600 nobody knows."""
        now = replace(NOW, low=at(0, 520))
        with pytest.raises(SourceChanged, match="lost the offsets 500 to 519"):
            begin(RECORD, [place("t", at(600, 600), at(500, 500)), place("dead")], now, "earliest")

    def test_up_to_where_we_are_is_fine(self) -> None:
        assert begin(RECORD, [], replace(NOW, low=at(500, 500)), "earliest") == at(500, 500)


class TestUncertainTable:
    def test_that_landed_beyond_what_is_complete_is_asked_for_its_rows(self) -> None:
        ahead, level = place("t", at(600, 500), at(500, 500)), place("u", at(500, 500))
        assert uncertain([ahead, level], at(500, 500)) == [ahead]

    def test_of_ours_without_a_mark_is_asked_for_its_rows(self) -> None:
        """It may be a copy, or its history was cut; one that was never ours holds what another pipeline read."""
        never = place("v")
        assert uncertain([never], at(500, 500), ["v"]) == [never]
        assert uncertain([never], at(500, 500), ["u"]) == []

    def test_is_asked_for_a_partition_that_is_not_complete_anywhere_as_well(self) -> None:
        added = place("t", at(500, 7), at(500))
        assert uncertain([added], at(500)) == [added]

    def test_that_is_empty_holds_nothing(self) -> None:
        assert uncertain([replace(place("t", known=False), main=None)], at(5)) == []


TABLE = "ingest.events"


KNOWN = {TABLE: Registered("uuid-1")}


class TestRegisteredTable:
    def test_that_is_the_same_is_fine(self) -> None:
        new = place("new", uuid="uuid-2")
        same_tables(KNOWN, {}, {TABLE: place(TABLE, uuid="uuid-1"), "new": new})

    @pytest.mark.parametrize(
        ("now", "says"), [("uuid-2", "was replaced .uuid uuid-1… is now uuid-2…"), (None, "was dropped")]
    )
    def test_that_was_replaced_or_dropped_stops_the_start(self, now: str | None, says: str) -> None:
        with pytest.raises(TableChanged, match=f"table ingest.events {says}"):
            same_tables(KNOWN, {}, {TABLE: place(TABLE, uuid=now)} if now else {})

    def test_that_is_to_be_taken_as_it_is_may_be_any(self) -> None:
        for now in ({}, {TABLE: place(TABLE, uuid="uuid-2")}):
            same_tables({TABLE: Registered("")}, {TABLE: (9, 9)}, now)


class TestRolledBackTable:
    @pytest.mark.parametrize(("head", "stops"), [((1, 1), False), ((1, 2), True), ((2, 0), True), ((0, 7), False)])
    def test_is_one_that_does_not_show_what_landed_last(self, head: tuple[int, int], *, stops: bool) -> None:
        now = {TABLE: place(TABLE, at(5, 5), uuid="uuid-1")}  # by batch 1 of epoch 1
        with pytest.raises(TableChanged, match="rolled back") if stops else nullcontext():
            same_tables(KNOWN, {TABLE: head}, now)

    def test_to_before_us_stops_the_start_and_a_cut_history_tells_nothing(self) -> None:
        with pytest.raises(TableChanged, match=r"batch 0 of epoch 1.*rolled back.*ingest recover"):
            same_tables(KNOWN, {TABLE: (1, 0)}, {TABLE: place(TABLE, uuid="uuid-1")})
        cut = replace(place(TABLE, uuid="uuid-1"), whole=False)
        same_tables(KNOWN, {TABLE: (1, 0)}, {TABLE: cut})
