"""Where a start begins, rule by rule: from the tables and the source as they are now, or not at all."""

from dataclasses import replace

import pytest

from lakehouse_ingest.errors import LedgerUnclear, SettingsRefused
from lakehouse_ingest.ledger.marks import Mark, ids_of, newest, to_summary
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.new_topics import refuse_unkept, refuse_unread
from lakehouse_ingest.resume.start_offsets import uncertain
from lakehouse_ingest.settings import SourceSettings
from tests.unit.starts import NEVER, NOON, NOW, RECORD, at, begin, place


class TestFirstStart:
    def test_reads_from_the_earliest_record_that_is_there(self) -> None:
        now = replace(NOW, low=at(7, 0))
        assert begin(NEVER, [place("dead")], now, "earliest") == at(7, 0)

    def test_at_latest_reads_what_comes_from_now_on(self) -> None:
        assert begin(NEVER, [place("dead")], NOW, "latest") == at(1000, 1000)

    def test_at_a_time_reads_from_the_first_record_since_or_from_the_end(self) -> None:
        assert begin(NEVER, [], NOW, NOON) == at(600, 1000)
        assert begin(NEVER, [], NOW, "2026-11-18T13:00:00+01:00") == at(600, 1000)

    def test_at_offsets_reads_from_them_and_elsewhere_from_the_earliest(self) -> None:
        assert begin(NEVER, [], replace(NOW, low=at(0, 7)), {"t": {0: 42}}) == at(42, 7)
        assert begin(NEVER, [], NOW, {0: 42, 1: 1000}) == at(42, 1000)

    def test_takes_what_names_a_topic_before_what_is_for_each(self) -> None:
        assert begin(NEVER, [], NOW, {"t": {0: 42}, "": {0: 7, 1: 8}}) == at(42, 0)

    @pytest.mark.parametrize(("start", "second"), [("earliest", 0), ("latest", 1000), ({"t": {0: 1, 1: 2}}, 2)])
    def test_reads_from_the_record_after_the_one_that_seek_names(self, start: object, second: int) -> None:
        assert begin(NEVER, [], NOW, start, {"t": {0: 41}}) == at(42, second)

    @pytest.mark.parametrize(
        ("start", "stable", "first"),
        [("latest", 400, 400), (NOON, 400, 400), (NOON, 700, 600), ("earliest", 400, 0), ({"t": {0: 500}}, 400, 500)],
    )
    def test_lies_no_further_than_a_reader_gets(self, start: object, stable: int, first: int) -> None:
        """Unless the settings name the very offset; records that were sent while we looked are read."""
        now = replace(NOW, ends=at(stable, 1005))
        assert begin(NEVER, [], now, start)["t", 0] == first
        assert begin(NEVER, [], now, "latest") == at(stable, 1000)

    @pytest.mark.parametrize(
        ("start", "seek", "says"),
        [
            ({"t": {0: 1001}}, {}, r"`source.start` names offset 1001 of topic t partition 0, which holds 7 to 999"),
            ({"t": {0: 6}}, {}, r"`source.start` names offset 6 of topic t partition 0, which holds 7 to 999"),
            (
                {"t": {1: 1}},
                {},
                r"`source.start` names offset 1 of topic t partition 1, which is empty and goes on at 0",
            ),
            ({"t": {2: 0}}, {}, r"`source.start` names partition 2 of topic t, whose partitions are 0 to 1"),
            ("latest", {0: 1000}, r"`source.seek` names offset 1000 of topic t partition 0, which holds 7 to 999"),
            ("latest", {"t": {2: 0}}, r"`source.seek` names partition 2 of topic t"),
        ],
    )
    def test_where_the_broker_holds_nothing_is_refused(self, start: object, seek: object, says: str) -> None:
        with pytest.raises(SettingsRefused, match=says):
            begin(NEVER, [], replace(NOW, low=at(7, 0), high=at(1000, 0)), start, seek)

    @pytest.mark.parametrize(("setting", "of_topic"), [("start", {0: 1}), ("seek", {0: 1}), ("partitions", [0])])
    def test_of_a_topic_that_no_stream_reads_is_refused(self, setting: str, of_topic: object) -> None:
        settings = SourceSettings.model_validate({setting: {"t": of_topic, "tt": of_topic}})
        with pytest.raises(SettingsRefused, match=f"`source.{setting}` names the topic tt, which no stream reads"):
            refuse_unread(settings, lambda topic: topic == "t")


class TestLaterStart:
    @pytest.mark.parametrize("start", ["earliest", "latest"])
    def test_goes_on_where_all_tables_are_complete(self, start: str) -> None:
        assert begin(RECORD, [place("t", at(600, 600), at(400, 400))], NOW, start) == at(500, 500)

    def test_takes_the_highest_complete_of_any_table_or_the_record(self) -> None:
        tables = [place("t", at(700, 700), at(600, 100)), place("dead", at(650, 650), at(100, 650))]
        assert begin(RECORD, tables, NOW, "earliest") == at(600, 650)

    def test_does_not_take_the_place_of_a_single_table_for_complete(self) -> None:
        """It may have landed a batch whose dead letters did not."""
        ahead = place("t", at(900, 900), at(500, 500))
        assert begin(RECORD, [ahead, place("dead")], NOW, "earliest") == at(500, 500)

    def test_without_the_batch_record_goes_by_the_tables_alone(self) -> None:
        tables = [place("t", at(700, 700), at(600, 600)), place("dead")]
        assert begin(NEVER, tables, NOW, "earliest") == at(600, 600)

    @pytest.mark.parametrize("start", ["earliest", "latest"])
    def test_reads_a_new_partition_of_a_known_topic_from_its_first_record(self, start: str) -> None:
        """Even at `latest`: what came before we looked is not lost."""
        record = place("record", at(500))
        assert begin(record, [], NOW, start) == at(500, 0)

    @pytest.mark.parametrize(("start", "offset"), [("earliest", 3), ("latest", 9)])
    def test_reads_a_new_topic_from_where_the_settings_say(self, start: str, offset: int) -> None:
        low, high = {**NOW.low, ("new", 0): 3}, {**NOW.high, ("new", 0): 9}
        now = SourceNow(SourceIdentity("cluster-1", {"t": "id-1", "new": "id-9"}), low, high)
        assert begin(RECORD, [], now, start) == {**at(500, 500), ("new", 0): offset}

    def test_does_not_read_a_topic_that_was_taken_out(self) -> None:
        record = place("record", {**at(500, 500), ("old", 0): 10**6})
        assert begin(record, [], NOW, "earliest") == at(500, 500)

    @pytest.mark.parametrize("start", [{"t": {0: 42}}, {"t": {0: 10**9}}, {"t": {7: 1}}, NOON])
    def test_goes_by_the_ledger_before_start_and_seek(self, start: object) -> None:
        """They may stay in the file for years, when the broker has long forgotten those offsets."""
        assert begin(RECORD, [], NOW, start, {"t": {0: 10**9}}) == at(500, 500)

    def test_that_does_not_read_a_topic_does_not_forget_which_one_it_was(self) -> None:
        """Its id is found again in the marks, and a topic made anew under its name is noticed."""
        first = Mark(
            Token("p", 1, 1, 1), SourceIdentity("c", {"a": "id-a", "b": "id-b"}), {}, {("b", 0): 100}, {("b", 0): 100}
        )
        ids = ids_of([first, Mark(Token("p", 1, 2, 1), SourceIdentity("c", {"a": "id-a", "b": ""}), {}, {}, {})])
        assert ids == {"a": "id-a", "b": "id-b"}
        again = Mark(Token("p", 1, 2, 1), SourceIdentity("c", ids), {}, {("a", 0): 5}, {("a", 0): 5})
        found = newest([to_summary(again, {}), to_summary(first, {})], "p")
        assert found
        assert found.source.topics == {"a": "id-a", "b": "id-b"}


class TestStatedPartition:
    @pytest.mark.parametrize(("start", "offset"), [("earliest", 0), ("latest", 1000), ({"t": {0: 7, 1: 8}}, 8)])
    def test_that_is_new_begins_where_the_settings_say(self, start: object, offset: int) -> None:
        """Unlike one that the topic has got since."""
        assert begin(place("record", at(500)), [], NOW, start, stated={"t": [0, 1]}) == at(500, offset)

    def test_beside_those_that_are_read_can_have_no_start(self) -> None:
        now = replace(NOW, low=at(0), high=at(1000))
        with pytest.raises(SettingsRefused, match=r"`source.start` names partition 1 of topic t.*`source.partitions`"):
            begin(NEVER, [], now, {"t": {1: 7}}, stated={"t": [0]})

    def test_that_the_source_does_not_keep_to_is_refused(self) -> None:
        settings = SourceSettings.model_validate({"kind": "other", "partitions": {"t": [0]}})
        refuse_unkept(settings, at(0))
        with pytest.raises(SettingsRefused, match=r"kind other .*`source.partitions`.*partition 1 of topic t"):
            refuse_unkept(settings, at(0, 0))


class TestPrunedTable:
    def test_does_no_harm_where_the_record_knows(self) -> None:
        """What it holds beyond that is told by its rows."""
        pruned = place("t", known=False)
        assert begin(RECORD, [pruned], NOW, "earliest") == at(500, 500)
        assert uncertain([pruned], RECORD.held) == [pruned]

    def test_is_no_reason_to_begin_anew(self) -> None:
        with pytest.raises(LedgerUnclear, match=r"history of t was expired .*ingest recover`"):
            begin(NEVER, [place("t", known=False)], NOW, "earliest")


class TestPrunedRecord:
    def test_is_no_reason_to_begin_anew(self) -> None:
        with pytest.raises(LedgerUnclear, match="history of record was expired"):
            begin(place("record", known=False), [place("t"), place("dead")], NOW, "earliest")

    def test_does_no_harm_where_a_table_knows(self) -> None:
        table = place("t", at(700, 700), at(600, 600))
        assert begin(place("record", known=False), [table, place("dead")], NOW, "earliest") == at(600, 600)
