"""Settings that changed between two starts: what stops, what is noted, and what nobody has to know."""

from typing import Any

import pytest

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.resume.setting_changes import as_text, compare, hash_of, meaning
from lakehouse_ingest.settings import load_settings


def settled(**changes: Any) -> dict[str, object]:
    table: dict[str, Any] = {"table": "events", "event_time": "ts", **changes.pop("table", {})}
    stream = {"topics": ["a", "b"], "tables": [table], **changes.pop("stream", {})}
    tree: dict[str, Any] = {"name": "p", "streams": [stream], **changes}
    settings = load_settings(None, tree, {})
    return meaning(settings, settings.streams[0])


BEFORE = as_text(settled())


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


class TestSettings:
    def test_of_a_first_start_are_compared_with_nothing(self) -> None:
        assert compare(None, settled(), accepted=False) == []

    def test_that_are_the_same_are_no_change(self) -> None:
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
    def test_that_mean_nothing_for_the_rows_may_change_unsaid(self, changes: dict[str, Any]) -> None:
        assert compare(BEFORE, settled(**changes), accepted=False) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"stream": {"tables": [{"table": "events", "event_time": "ts"}, {"table": "others"}]}},
            {"table": {"columns": [{"name": "ts", "type": "long"}]}},
            {"table": {"hints": {"price": "decimal(10,2)"}}},
            {"table": {"topics": ["a"]}},
        ],
    )
    def test_that_mean_nothing_for_landed_records_are_noted(self, changes: dict[str, Any]) -> None:
        assert len(compare(BEFORE, settled(**changes), accepted=False)) == 1

    def test_that_an_older_program_did_not_record_are_no_change(self) -> None:
        assert compare('{"topics":["a","b"]}', settled(), accepted=False) == []

    def test_have_a_hash_in_each_commit_that_follows_their_meaning(self) -> None:
        settings = settled()
        assert hash_of(settings) == hash_of(settled(stream={"every": "1h"}))
        assert len({hash_of(settings), *(hash_of(settled(**changes)) for _, changes in GRAVE)}) == len(GRAVE) + 1


class TestTopics:
    def test_with_one_more_are_noted(self) -> None:
        now = settled(stream={"topics": ["a", "b", "c"]})
        assert compare(BEFORE, now, accepted=False) == ['topics: ["a", "b"] -> ["a", "b", "c"]']

    def test_in_another_order_are_the_same(self) -> None:
        assert compare(BEFORE, settled(stream={"topics": ["b", "a"]}), accepted=False) == []

    def test_that_a_pattern_finds_may_become_more_or_less(self) -> None:
        settings = load_settings(None, {"name": "p", "streams": [{"topic_pattern": "a.*"}]}, {})
        found = [settings.streams[0].model_copy(update={"topics": topics}) for topics in (("a", "ab"), ("a", "ac"))]
        before, now = (meaning(settings, stream) for stream in found)
        assert compare(as_text(before), now, accepted=False) == []
        with pytest.raises(SettingsRefused, match=r'`topics` was "a.\*" .* now \["a", "b"\]'):
            compare(as_text(before), settled(), accepted=False)


class TestChangeOfMeaning:
    def test_by_a_column_less_or_of_another_type_stops_the_start(self) -> None:
        before = as_text(settled(table={"columns": [{"name": "ts", "type": "long"}]}))
        for columns in ([], [{"name": "ts", "type": "string"}]):
            with pytest.raises(SettingsRefused, match=r"tables\.events\.columns"):
                compare(before, settled(table={"columns": columns}), accepted=False)

    @pytest.mark.parametrize(("key", "changes"), GRAVE)
    def test_stops_the_start_with_both_values_and_the_way_out(self, key: str, changes: dict[str, Any]) -> None:
        with pytest.raises(SettingsRefused, match=f"`{key}` was .* is now .*--accept-changes"):
            compare(BEFORE, settled(**changes), accepted=False)

    @pytest.mark.parametrize(("key", "changes"), GRAVE)
    def test_that_was_accepted_is_noted(self, key: str, changes: dict[str, Any]) -> None:
        (note,) = compare(BEFORE, settled(**changes), accepted=True)
        assert note.startswith(f"{key}: ")
        assert " -> " in note

    @pytest.mark.parametrize(("then", "now"), [({}, {"a": [0]}), ({"a": [0]}, {}), ({"a": [0]}, {"a": [0, 1]})])
    def test_of_the_partitions_stops_the_start(self, then: object, now: object) -> None:
        """Also where an older version has left nothing of them."""
        before = settled(source={"partitions": then})
        if not then:
            del before["source.partitions"]
        after = settled(source={"partitions": now})
        with pytest.raises(SettingsRefused, match=r"`source.partitions` was .*--accept-changes"):
            compare(as_text(before), after, accepted=False)
        assert len(compare(as_text(before), after, accepted=True)) == 1
        assert compare(as_text(after), after, accepted=False) == []
