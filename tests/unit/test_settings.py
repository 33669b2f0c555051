"""Settings: a default for each but the topic, nothing unknown, and one sentence for each refusal."""

from typing import Any

import pytest

from tests.services.given_settings import ONE_TOPIC, in_stream, in_table, loaded, refused


class TestSettings:
    def test_have_a_default_for_all_but_the_topic(self) -> None:
        found = loaded()
        assert (found.name, found.source.brokers, found.streams[0].every) == ("sensors", "localhost:9092", 5.0)

    def test_cannot_be_changed_later(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            loaded().name = "other"

    @pytest.mark.parametrize(
        ("text", "found"), [("5s", 5), ("250ms", 0.25), ("10m", 600), ("1h", 3600), (" 2 s", 2), (3, 3)]
    )
    def test_accept_durations_with_a_unit(self, text: str | int, found: float) -> None:
        assert loaded(in_stream(every=text)).streams[0].every == found

    @pytest.mark.parametrize(
        ("text", "found"), [("1KiB", 1024), ("128MiB", 2**27), ("1 GiB", 2**30), ("77", 77), (5, 5)]
    )
    def test_accept_sizes_with_a_unit(self, text: str | int, found: int) -> None:
        assert loaded(in_table(target_file_size=text)).streams[0].tables[0].target_file_size == found

    @pytest.mark.parametrize(
        ("topic", "name"),
        [("sensors", "sensors"), ("plant-7", "plant-7"), ("Plant.7", "plant-7-c6e5a194"), ("_x", "x-a01e47cb")],
    )
    def test_name_the_pipeline_after_a_single_topic(self, topic: str, name: str) -> None:
        assert loaded({"streams": [{"topics": [topic]}]}).name == name

    def test_have_partitions_by_topic(self) -> None:
        found = loaded({"streams": [{"topics": ["a.b"]}], "source": {"partitions": {"a.b": [3, 1]}}})
        assert found.source.partitions == {"a.b": (1, 3)}
        found = loaded(environment={"LAKEHOUSE_INGEST_SOURCE__PARTITIONS": '{"sensors": [0]}'})
        assert found.source.partitions == {"sensors": (0,)}


class TestRefusal:
    @pytest.mark.parametrize(
        ("tree", "unknown", "nearest"),
        [
            ({"catalogue": {}}, "catalogue", "catalog"),
            ({"catalog": {"url": "x"}}, "catalog.url", "uri"),
            (in_stream(evry="1s"), "streams.0.evry", "every"),
            (in_table(partition="x"), "streams.0.tables.0.partition", "partition_by"),
            (
                in_table(columns=[{"name": "a", "type": "int", "requierd": True}]),
                "streams.0.tables.0.columns.0.requierd",
                "required",
            ),
        ],
    )
    def test_of_an_unknown_key_names_the_nearest(self, tree: dict[str, Any], unknown: str, nearest: str) -> None:
        assert refused({**ONE_TOPIC, **tree}) == f"unknown setting `{unknown}`; did you mean `{nearest}`?"

    def test_of_a_misspelled_section_comes_before_what_is_missing(self) -> None:
        assert refused({"stream": [{"topics": ["a"]}]}) == "unknown setting `stream`; did you mean `streams`?"

    def test_shows_a_value_as_it_was_written(self) -> None:
        sentence = refused({**ONE_TOPIC, "source": {"security": {"mechanism": "aws_msk_iam"}}})
        assert sentence.endswith("not 'aws_msk_iam'")

    def test_of_a_pattern_without_a_name_gives_the_reason(self) -> None:
        sentence = refused({"streams": [{"topic_pattern": "a.*"}]})
        assert sentence == "the setting `name` is missing: with a `topic_pattern` the pipeline needs a name of its own"

    def test_of_a_key_that_resembles_nothing_lists_the_known_ones(self) -> None:
        sentence = refused({**ONE_TOPIC, "retry": {"zzz": 1}})
        assert sentence == "unknown setting `retry.zzz`; known here: first, limit"

    @pytest.mark.parametrize(
        ("tree", "setting", "says"),
        [
            (in_stream(every="5 parsecs"), "streams.0.every", "duration such as 5s"),
            (in_stream(every=-1), "streams.0.every", "duration such as 5s"),
            (in_stream(every="99999999999h"), "streams.0.every", "duration such as 5s"),
            (in_stream(every=True), "streams.0.every", "duration such as 5s"),
            (in_stream(max_records=0), "streams.0.max_records", "greater than 0"),
            (in_stream(max_records="many"), "streams.0.max_records", "whole number"),
            (in_stream(format=""), "streams.0.format", "at least 1 character"),
            (in_table(target_file_size="12 furlongs"), "streams.0.tables.0.target_file_size", "size such as 128MiB"),
            (in_table(target_file_size="0"), "streams.0.tables.0.target_file_size", "size such as 128MiB"),
            (in_table(codec="brotli"), "streams.0.tables.0.codec", "'zstd'"),
            (in_table(columns=[{"type": "int"}]), "streams.0.tables.0.columns.0.name", "is missing"),
            ({**ONE_TOPIC, "source": {"start": "now"}}, "source.start", "'earliest' or 'latest'"),
            ({**ONE_TOPIC, "catalog": {"namespace": "a b"}}, "catalog.namespace", "letters, digits and _"),
            ({**ONE_TOPIC, "catalog": "http://x"}, "catalog", "section with settings"),
            ({**ONE_TOPIC, "name": "Plant 7"}, "name", "lower-case letters"),
            ({"streams": [{"topics": "sensors"}]}, "streams.0.topics", "a list, such as"),
            ({"name": "x", "streams": [{"topics": []}]}, "streams.0", "either `topics` or"),
            ({"streams": [{"every": "1s"}]}, "streams.0", "either `topics` or"),
            ({"streams": {"topics": ["a"]}}, "streams", "a list, such as"),
            (
                {"name": "x", "streams": [{"topics": ["a"]}, {"topics": ["b"]}]},
                "streams",
                "each have a `name`, except one",
            ),
            ({"name": "x", "streams": [{"name": "s", "topics": ["a"]}] * 2}, "streams", "s is there twice"),
            (
                {"name": "x", "streams": [{"topics": ["a"]}, {"name": "a", "topics": ["b"]}]},
                "streams",
                "a is the `name` of",
            ),
            (in_stream(type_from="somewhere"), "streams.0.type_from", "field:path.to.it, header:name or key"),
            (in_stream(type_from="field:a..b"), "streams.0.type_from", "field:path.to.it"),
            (in_stream(type_from="key", keep_types="("), "streams.0.keep_types", "regular expression"),
            (in_stream(keep_types="x"), "streams.0", "`type_from`"),
            (in_table(table="{type}"), "streams.0", "`type_from`"),
            (in_table(types=["x"]), "streams.0", "`type_from`"),
            (in_table(table="a b"), "streams.0.tables.0.table", "letters, digits and _"),
            (in_stream(tables=[{"table": "x"}, {"table": "x"}]), "streams.0", "x once"),
            (in_stream(on_error="drop"), "streams.0.on_error", "'log', 'raise' or 'ignore'"),
            ({**ONE_TOPIC, "ledger": {"keep_snapshots": 1}}, "ledger.keep_snapshots", "greater than or equal to 2"),
        ],
    )
    def test_of_a_wrong_value_is_one_sentence_with_the_setting(
        self, tree: dict[str, Any], setting: str, says: str
    ) -> None:
        sentence = refused(tree)
        assert f"`{setting}`" in sentence
        assert says in sentence

    def test_of_several_topics_without_a_name_gives_the_reason(self) -> None:
        sentence = refused({"streams": [{"topics": ["a", "b"]}]})
        assert (
            sentence == "the setting `name` is missing: with more than one topic the pipeline needs a name of its own"
        )

    def test_of_empty_settings_says_what_is_needed(self) -> None:
        assert "--topics" in refused({})

    @pytest.mark.parametrize(
        "wrong", [[0], {"t": []}, {"t": [-1]}, {"t": [1, 1]}, {"t": 1}, {"t": ["x"]}, {"t": [True]}, "x:"]
    )
    def test_of_malformed_partitions_shows_the_form(self, wrong: object) -> None:
        assert "such as { topic = [0, 1] }" in refused({"source": {"partitions": wrong}})
