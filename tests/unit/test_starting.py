"""Where a start begins, rule by rule: from the tables and the source as they are now, or not at all."""

import datetime as dt
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SettingsRefused, SourceChanged, TableChanged
from lakehouse_ingest.ledger.marks import Mark, ids_of, newest, to_summary
from lakehouse_ingest.records import Offsets, SourceIdentity, Token
from lakehouse_ingest.resume import start_offsets
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.new_topics import beginning, refuse_unkept, refuse_unread
from lakehouse_ingest.resume.setting_changes import as_text, compare, hash_of, meaning
from lakehouse_ingest.resume.start_offsets import complete, same_tables, uncertain
from lakehouse_ingest.settings import SourceSettings, load_settings
from lakehouse_ingest.tables import Position, Registered

IDENTITY = SourceIdentity("cluster-1", {"t": "id-1"})
NOW = SourceNow(IDENTITY, {("t", 0): 0, ("t", 1): 0}, {("t", 0): 1000, ("t", 1): 1000})


def at(first: int, second: int | None = None) -> Offsets:
    return {("t", 0): first} if second is None else {("t", 0): first, ("t", 1): second}


def place(
    table: str,
    following: Offsets | None = None,
    complete: Offsets | None = None,
    *,
    source: SourceIdentity = IDENTITY,
    known: bool = True,
    uuid: str = "",
) -> Position:
    """A table that holds up to `following`; without one it has no mark of ours."""
    found = None
    if following is not None:
        found = Mark(Token("p", 1, 1, 1), source, {}, following, following if complete is None else complete)
    return Position(table, "branch", 1, found, {}, known=known, uuid=uuid)


def begin(
    record: Position, places: list[Position], now: SourceNow, start: object, seek: object = None, stated: object = None
) -> Offsets:
    """As a stream does it; at noon partition 0 stood at 600, and partition 1 has no record since."""
    settings = SourceSettings.model_validate({"start": start, "seek": seek or {}, "partitions": stated or {}})
    done = complete(record, places)
    new = beginning(
        settings,
        *now.unknown(done, settings.partitions),
        lambda moment: {("t", 0): 600} if moment == NOON else {},
        done,
        now.ends,
    )
    return start_offsets.begin(record, places, now, new)


NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
RECORD, NEVER = place("record", at(500, 500)), place("record")


# -- begin ------------------------------------------------------------------------------------------------


def test_a_first_start_reads_from_the_earliest_record_that_is_there() -> None:
    now = replace(NOW, low=at(7, 0))
    assert begin(NEVER, [place("dead")], now, "earliest") == at(7, 0)


def test_a_first_start_at_latest_reads_what_comes_from_now_on() -> None:
    assert begin(NEVER, [place("dead")], NOW, "latest") == at(1000, 1000)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_later_start_goes_on_where_all_tables_are_complete(start: str) -> None:
    assert begin(RECORD, [place("t", at(600, 600), at(400, 400))], NOW, start) == at(500, 500)


def test_complete_is_the_highest_that_any_table_or_the_record_holds() -> None:
    tables = [place("t", at(700, 700), at(600, 100)), place("dead", at(650, 650), at(100, 650))]
    assert begin(RECORD, tables, NOW, "earliest") == at(600, 650)


def test_the_place_of_a_single_table_is_not_complete() -> None:
    """It may have landed a batch whose dead letters did not."""
    ahead = place("t", at(900, 900), at(500, 500))
    assert begin(RECORD, [ahead, place("dead")], NOW, "earliest") == at(500, 500)


def test_without_the_batch_record_the_tables_alone_tell() -> None:
    tables = [place("t", at(700, 700), at(600, 600)), place("dead")]
    assert begin(NEVER, tables, NOW, "earliest") == at(600, 600)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_new_partition_of_a_known_topic_is_read_from_its_first_record(start: str) -> None:
    """Even at `latest`: what came before we looked is not lost."""
    record = place("record", at(500))
    assert begin(record, [], NOW, start) == at(500, 0)


@pytest.mark.parametrize(("start", "offset"), [("earliest", 3), ("latest", 9)])
def test_a_new_topic_begins_where_the_settings_say(start: str, offset: int) -> None:
    low, high = {**NOW.low, ("new", 0): 3}, {**NOW.high, ("new", 0): 9}
    now = SourceNow(SourceIdentity("cluster-1", {"t": "id-1", "new": "id-9"}), low, high)
    assert begin(RECORD, [], now, start) == {**at(500, 500), ("new", 0): offset}


@pytest.mark.parametrize(
    ("start", "stable", "first"),
    [("latest", 400, 400), (NOON, 400, 400), (NOON, 700, 600), ("earliest", 400, 0), ({"t": {0: 500}}, 400, 500)],
)
def test_a_start_lies_no_further_than_a_reader_gets(start: object, stable: int, first: int) -> None:
    """Unless the settings name the very offset; records that were sent while we looked are read."""
    now = replace(NOW, ends=at(stable, 1005))
    assert begin(NEVER, [], now, start)["t", 0] == first
    assert begin(NEVER, [], now, "latest") == at(stable, 1000)


def test_a_topic_that_was_taken_out_is_not_read() -> None:
    record = place("record", {**at(500, 500), ("old", 0): 10**6})
    assert begin(record, [], NOW, "earliest") == at(500, 500)


@pytest.mark.parametrize("where", ["record", "table"])
def test_a_topic_that_was_made_anew_stops(where: str) -> None:
    old = SourceIdentity("cluster-1", {"t": "id-0"})
    record = place("record", at(5, 5), source=old) if where == "record" else NEVER
    table = place("t", at(5, 5), source=old) if where == "table" else place("t")
    with pytest.raises(
        SourceChanged, match=r"topic t was deleted and recreated \(id id-0 is now id-1\).*ingest recover`"
    ):
        begin(record, [table], NOW, "earliest")


def test_another_cluster_stops() -> None:
    other = place("record", at(5, 5), source=SourceIdentity("cluster-0", {"t": "id-1"}))
    with pytest.raises(SourceChanged, match=r"cluster cluster-0, this one is cluster-1.*`source.brokers`"):
        begin(other, [], NOW, "earliest")


@pytest.mark.parametrize("then", [SourceIdentity(), SourceIdentity("cluster-1"), SourceIdentity("", {"t": ""})])
def test_a_broker_that_gave_no_ids_is_compared_by_name_only(then: SourceIdentity) -> None:
    assert begin(place("record", at(5, 5), source=then), [], NOW, "earliest") == at(5, 5)


@pytest.mark.parametrize("ahead", ["record", "table"])
def test_an_end_that_went_back_stops(ahead: str) -> None:
    """Also when only one table got so far: its rows came from records that are no more."""
    record = place("record", at(1001, 5)) if ahead == "record" else RECORD
    table = place("t", at(1001, 5), at(5, 5)) if ahead == "table" else place("t")
    with pytest.raises(SourceChanged, match="partition 0 ends at offset 1000, the tables hold it up to 1001"):
        begin(record, [table], NOW, "earliest")


def test_an_end_that_is_just_reached_is_fine() -> None:
    assert begin(place("record", at(1000, 1000)), [], NOW, "earliest") == at(1000, 1000)


def test_retention_that_passed_us_stops_with_the_range_that_is_lost() -> None:
    now = replace(NOW, low=at(0, 520))
    with pytest.raises(SourceChanged, match=r"partition 1 has lost the offsets 500 to 519 .*\(retention\)"):
        begin(RECORD, [], now, "earliest")


def test_retention_that_passed_the_dead_letters_but_not_the_table_stops() -> None:
    """The table holds up to 600, but of the dead letters between 500 and 600 nobody knows."""
    now = replace(NOW, low=at(0, 520))
    with pytest.raises(SourceChanged, match="lost the offsets 500 to 519"):
        begin(RECORD, [place("t", at(600, 600), at(500, 500)), place("dead")], now, "earliest")


def test_retention_up_to_where_we_are_is_fine() -> None:
    assert begin(RECORD, [], replace(NOW, low=at(500, 500)), "earliest") == at(500, 500)


# -- where a topic begins that no table holds ---------------------------------------------------------------


def test_a_time_is_the_first_record_since_or_the_end_where_there_is_none() -> None:
    assert begin(NEVER, [], NOW, NOON) == at(600, 1000)
    assert begin(NEVER, [], NOW, "2026-11-18T13:00:00+01:00") == at(600, 1000)


def test_offsets_are_the_first_records_and_what_is_not_named_begins_at_the_earliest() -> None:
    assert begin(NEVER, [], replace(NOW, low=at(0, 7)), {"t": {0: 42}}) == at(42, 7)
    assert begin(NEVER, [], NOW, {0: 42, 1: 1000}) == at(42, 1000)


def test_a_topic_that_is_named_has_nothing_of_what_is_for_each() -> None:
    assert begin(NEVER, [], NOW, {"t": {0: 42}, "": {0: 7, 1: 8}}) == at(42, 0)


@pytest.mark.parametrize(("start", "second"), [("earliest", 0), ("latest", 1000), ({"t": {0: 1, 1: 2}}, 2)])
def test_seek_names_the_last_record_before_and_goes_before_start(start: object, second: int) -> None:
    assert begin(NEVER, [], NOW, start, {"t": {0: 41}}) == at(42, second)


@pytest.mark.parametrize("start", [{"t": {0: 42}}, {"t": {0: 10**9}}, {"t": {7: 1}}, NOON])
def test_the_ledger_goes_before_both_and_what_they_say_of_its_topics_is_not_looked_at(start: object) -> None:
    """They may stay in the file for years, when the broker has long forgotten those offsets."""
    assert begin(RECORD, [], NOW, start, {"t": {0: 10**9}}) == at(500, 500)


@pytest.mark.parametrize(
    ("start", "seek", "says"),
    [
        ({"t": {0: 1001}}, {}, r"`source.start` names offset 1001 of topic t partition 0, which holds 7 to 999"),
        ({"t": {0: 6}}, {}, r"`source.start` names offset 6 of topic t partition 0, which holds 7 to 999"),
        ({"t": {1: 1}}, {}, r"`source.start` names offset 1 of topic t partition 1, which is empty and goes on at 0"),
        ({"t": {2: 0}}, {}, r"`source.start` names partition 2 of topic t, whose partitions are 0 to 1"),
        ("latest", {0: 1000}, r"`source.seek` names offset 1000 of topic t partition 0, which holds 7 to 999"),
        ("latest", {"t": {2: 0}}, r"`source.seek` names partition 2 of topic t"),
    ],
)
def test_what_the_broker_does_not_hold_is_refused(start: object, seek: object, says: str) -> None:
    with pytest.raises(SettingsRefused, match=says):
        begin(NEVER, [], replace(NOW, low=at(7, 0), high=at(1000, 0)), start, seek)


@pytest.mark.parametrize(("setting", "of_topic"), [("start", {0: 1}), ("seek", {0: 1}), ("partitions", [0])])
def test_a_topic_that_no_stream_reads_is_refused(setting: str, of_topic: object) -> None:
    settings = SourceSettings.model_validate({setting: {"t": of_topic, "tt": of_topic}})
    with pytest.raises(SettingsRefused, match=f"`source.{setting}` names the topic tt, which no stream reads"):
        refuse_unread(settings, lambda topic: topic == "t")


@pytest.mark.parametrize(("start", "offset"), [("earliest", 0), ("latest", 1000), ({"t": {0: 7, 1: 8}}, 8)])
def test_a_partition_that_is_stated_anew_begins_where_the_settings_say(start: object, offset: int) -> None:
    """Unlike one that the topic has got since."""
    assert begin(place("record", at(500)), [], NOW, start, stated={"t": [0, 1]}) == at(500, offset)


def test_a_place_within_what_is_left_out_is_refused() -> None:
    now = replace(NOW, low=at(0), high=at(1000))
    with pytest.raises(SettingsRefused, match=r"`source.start` names partition 1 of topic t.*`source.partitions`"):
        begin(NEVER, [], now, {"t": {1: 7}}, stated={"t": [0]})


def test_a_source_that_does_not_keep_to_the_partitions_is_refused() -> None:
    settings = SourceSettings.model_validate({"kind": "other", "partitions": {"t": [0]}})
    refuse_unkept(settings, at(0))
    with pytest.raises(SettingsRefused, match=r"kind other .*`source.partitions`.*partition 1 of topic t"):
        refuse_unkept(settings, at(0, 0))


# -- begin, where a history was pruned --------------------------------------------------------------------


def test_a_pruned_table_does_no_harm_where_the_record_knows() -> None:
    """What it holds beyond that is told by its rows."""
    pruned = place("t", known=False)
    assert begin(RECORD, [pruned], NOW, "earliest") == at(500, 500)
    assert uncertain([pruned], RECORD.held) == [pruned]


def test_a_pruned_table_is_no_reason_to_begin_anew() -> None:
    with pytest.raises(LedgerUnclear, match=r"history of t was expired .*ingest recover`"):
        begin(NEVER, [place("t", known=False)], NOW, "earliest")


def test_a_pruned_record_is_no_reason_to_begin_anew() -> None:
    with pytest.raises(LedgerUnclear, match="history of record was expired"):
        begin(place("record", known=False), [place("t"), place("dead")], NOW, "earliest")


def test_a_pruned_record_does_no_harm_where_a_table_knows() -> None:
    table = place("t", at(700, 700), at(600, 600))
    assert begin(place("record", known=False), [table, place("dead")], NOW, "earliest") == at(600, 600)


def test_what_stops_a_start_is_for_an_operator() -> None:
    assert issubclass(SourceChanged, NeedsOperator)
    assert issubclass(LedgerUnclear, NeedsOperator)


# -- what may be there beyond -----------------------------------------------------------------------------


def test_a_table_that_landed_beyond_what_is_complete_is_asked_for_its_rows() -> None:
    ahead, level = place("t", at(600, 500), at(500, 500)), place("u", at(500, 500))
    assert uncertain([ahead, level], at(500, 500)) == [ahead]


def test_a_table_of_ours_without_a_mark_is_asked_for_its_rows() -> None:
    """It may be a copy, or its history was cut; one that was never ours holds what another pipeline read."""
    never = place("v")
    assert uncertain([never], at(500, 500), ["v"]) == [never]
    assert uncertain([never], at(500, 500), ["u"]) == []


def test_a_partition_that_is_not_complete_anywhere_is_asked_for_as_well() -> None:
    added = place("t", at(500, 7), at(500))
    assert uncertain([added], at(500)) == [added]


def test_an_empty_table_holds_nothing() -> None:
    assert uncertain([replace(place("t", known=False), main=None)], at(5)) == []


TABLE = "ingest.events"
KNOWN = {TABLE: Registered("uuid-1")}


def test_the_tables_are_those_that_were_registered() -> None:
    new = place("new", uuid="uuid-2")
    same_tables(KNOWN, {}, {TABLE: place(TABLE, uuid="uuid-1"), "new": new})


@pytest.mark.parametrize(
    ("now", "says"), [("uuid-2", "was replaced .uuid uuid-1… is now uuid-2…"), (None, "was dropped")]
)
def test_a_table_that_was_replaced_or_dropped_stops(now: str | None, says: str) -> None:
    with pytest.raises(TableChanged, match=f"table ingest.events {says}"):
        same_tables(KNOWN, {}, {TABLE: place(TABLE, uuid=now)} if now else {})


def test_a_table_that_is_to_be_taken_as_it_is_may_be_any() -> None:
    for now in ({}, {TABLE: place(TABLE, uuid="uuid-2")}):
        same_tables({TABLE: Registered("")}, {TABLE: (9, 9)}, now)


@pytest.mark.parametrize(("head", "stops"), [((1, 1), False), ((1, 2), True), ((2, 0), True), ((0, 7), False)])
def test_a_table_that_does_not_show_what_landed_last_was_rolled_back(head: tuple[int, int], *, stops: bool) -> None:
    now = {TABLE: place(TABLE, at(5, 5), uuid="uuid-1")}  # by batch 1 of epoch 1
    with pytest.raises(TableChanged, match="rolled back") if stops else nullcontext():
        same_tables(KNOWN, {TABLE: head}, now)


def test_a_table_that_was_rolled_back_to_before_us_stops_and_one_whose_history_was_cut_tells_nothing() -> None:
    with pytest.raises(TableChanged, match=r"batch 0 of epoch 1.*rolled back.*ingest recover"):
        same_tables(KNOWN, {TABLE: (1, 0)}, {TABLE: place(TABLE, uuid="uuid-1")})
    cut = replace(place(TABLE, uuid="uuid-1"), whole=False)
    same_tables(KNOWN, {TABLE: (1, 0)}, {TABLE: cut})


# -- settings that changed --------------------------------------------------------------------------------


def settled(**changes: Any) -> dict[str, object]:
    table: dict[str, Any] = {"table": "events", "event_time": "ts", **changes.pop("table", {})}
    stream = {"topics": ["a", "b"], "tables": [table], **changes.pop("stream", {})}
    tree: dict[str, Any] = {"name": "p", "streams": [stream], **changes}
    settings = load_settings(None, tree, {})
    return meaning(settings, settings.streams[0])


BEFORE = as_text(settled())


def test_a_first_start_has_nothing_to_compare_with() -> None:
    assert compare(None, settled(), accepted=False) == []


def test_the_same_settings_are_no_change() -> None:
    assert compare(BEFORE, settled(), accepted=False) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": {"every": "1h", "max_records": 5}},
        {"table": {"codec": "gzip", "target_file_size": "1MiB"}},
        {"source": {"brokers": "elsewhere:1"}},
        {"spark": {"memory": "2g"}},
    ],
)
def test_what_means_nothing_for_the_rows_may_change_unsaid(changes: dict[str, Any]) -> None:
    assert compare(BEFORE, settled(**changes), accepted=False) == []


def test_a_topic_more_is_noted_and_goes_on() -> None:
    now = settled(stream={"topics": ["a", "b", "c"]})
    assert compare(BEFORE, now, accepted=False) == ['topics: ["a", "b"] -> ["a", "b", "c"]']


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": {"tables": [{"table": "events", "event_time": "ts"}, {"table": "others"}]}},
        {"table": {"columns": [{"name": "ts", "type": "long"}]}},
        {"table": {"hints": {"price": "decimal(10,2)"}}},
        {"table": {"topics": ["a"]}},
    ],
)
def test_what_means_nothing_for_the_records_that_have_landed_is_noted_and_goes_on(changes: dict[str, Any]) -> None:
    assert len(compare(BEFORE, settled(**changes), accepted=False)) == 1


def test_a_column_less_or_of_another_type_stops() -> None:
    before = as_text(settled(table={"columns": [{"name": "ts", "type": "long"}]}))
    for columns in ([], [{"name": "ts", "type": "string"}]):
        with pytest.raises(SettingsRefused, match=r"tables\.events\.columns"):
            compare(before, settled(table={"columns": columns}), accepted=False)


def test_topics_in_another_order_are_the_same() -> None:
    assert compare(BEFORE, settled(stream={"topics": ["b", "a"]}), accepted=False) == []


def test_what_a_pattern_finds_may_become_more_or_less() -> None:
    settings = load_settings(None, {"name": "p", "streams": [{"topic_pattern": "a.*"}]}, {})
    found = [settings.streams[0].model_copy(update={"topics": topics}) for topics in (("a", "ab"), ("a", "ac"))]
    before, now = (meaning(settings, stream) for stream in found)
    assert compare(as_text(before), now, accepted=False) == []
    with pytest.raises(SettingsRefused, match=r'`topics` was "a.\*" .* now \["a", "b"\]'):
        compare(as_text(before), settled(), accepted=False)


GRAVE: list[tuple[str, dict[str, Any]]] = [
    ("topics", {"stream": {"topics": ["a"]}}),
    ("topics", {"stream": {"topics": ["a", "c"]}}),
    ("tables", {"table": {"table": "others"}}),
    ("type_from", {"stream": {"type_from": "key"}}),
    ("format", {"stream": {"format": "of-others"}}),
    ("source.kind", {"source": {"kind": "of-others"}}),
    ("namespace", {"catalog": {"namespace": "other"}}),
    ("dead_letters", {"dead_letters": {"table": "others"}}),
    ("tables.events.event_time", {"table": {"event_time": "other"}}),
    ("tables.events.event_time_unit", {"table": {"event_time_unit": "s"}}),
]


@pytest.mark.parametrize(("key", "changes"), GRAVE)
def test_a_change_of_meaning_stops_with_both_values_and_the_way_out(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsRefused, match=f"`{key}` was .* is now .*--accept-changes"):
        compare(BEFORE, settled(**changes), accepted=False)


@pytest.mark.parametrize(("key", "changes"), GRAVE)
def test_a_change_of_meaning_that_was_accepted_is_noted(key: str, changes: dict[str, Any]) -> None:
    (note,) = compare(BEFORE, settled(**changes), accepted=True)
    assert note.startswith(f"{key}: ")
    assert " -> " in note


def test_a_setting_that_an_older_program_did_not_record_is_no_change() -> None:
    assert compare('{"topics":["a","b"]}', settled(), accepted=False) == []


def test_the_hash_in_each_commit_follows_the_meaning() -> None:
    settings = settled()
    assert hash_of(settings) == hash_of(settled(stream={"every": "1h"}))
    assert len({hash_of(settings), *(hash_of(settled(**changes)) for _, changes in GRAVE)}) == len(GRAVE) + 1


def test_a_start_that_does_not_read_a_topic_does_not_forget_which_one_it_was() -> None:
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


@pytest.mark.parametrize(("then", "now"), [({}, {"a": [0]}), ({"a": [0]}, {}), ({"a": [0]}, {"a": [0, 1]})])
def test_any_change_of_the_partitions_stops(then: object, now: object) -> None:
    """Also where an older version has left nothing of them."""
    before = settled(source={"partitions": then})
    if not then:
        del before["source.partitions"]
    after = settled(source={"partitions": now})
    with pytest.raises(SettingsRefused, match=r"`source.partitions` was .*--accept-changes"):
        compare(as_text(before), after, accepted=False)
    assert len(compare(as_text(before), after, accepted=True)) == 1
    assert compare(as_text(after), after, accepted=False) == []
