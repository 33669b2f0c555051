"""Settings: one precedence, nothing unknown, one sentence for each refusal, and no secret in any of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.errors import LONGEST, SettingsRefused
from lakehouse_ingest.settings import Settings, SparkSettings, from_flags, load_settings
from lakehouse_ingest.settings.spark_options import NOT_TAKEN, RELIED_ON

SECRET = "s3cr3t-planted"
ONE_TOPIC: dict[str, Any] = {"streams": [{"topics": ["sensors"]}]}

TOML = """
name = "plant-7"
[catalog]
uri = "http://localhost:8181"
namespace = "iot"
[source]
brokers = "kafka:9092"
options = { "client.id" = "x" }
[[streams]]
topics = ["sensors"]
every = "250ms"
[[streams.tables]]
table = "measured"
target_file_size = "64MiB"
partition_by = ["day(event_time)", "location"]
[[streams.tables.columns]]
name = "id"
type = "Int64"
required = true
"""
YAML = """
name: plant-7
catalog: {uri: "http://localhost:8181", namespace: iot}
source:
  brokers: kafka:9092
  options: {client.id: x}
streams:
- topics: [sensors]
  every: 250ms
  tables:
  - table: measured
    target_file_size: 64MiB
    partition_by: [day(event_time), location]
    columns:
    - {name: id, type: Int64, required: true}
"""


def loaded(
    tree: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, path: Path | None = None
) -> Settings:
    return load_settings(path, ONE_TOPIC if tree is None else tree, environment or {})


def refused(
    tree: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, path: Path | None = None
) -> str:
    with pytest.raises(SettingsRefused) as caught:
        loaded(tree, environment, path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def in_stream(**values: Any) -> dict[str, Any]:
    return {"name": "x", "streams": [{"topics": ["sensors"], **values}]}


def in_table(**values: Any) -> dict[str, Any]:
    return in_stream(tables=[values])


# -- entries that share a template ------------------------------------------------------------------------

A, B = {"topics": ["a"]}, {"topics": ["b"]}
X, Y = {"types": ["x"]}, {"types": ["y"]}


def sharing(template: str, *entries: Mapping[str, list[str]]) -> dict[str, Any]:
    tables = [{**entry, "table": template} for entry in entries]
    return {"name": "x", "streams": [{"topics": ["a", "b"], "type_from": "key", "tables": tables}]}


@pytest.mark.parametrize(
    ("template", "entries"),
    [
        ("{type}", (A, B)),
        ("{type}", (A, {})),
        ("{topic}", (X, Y)),
        ("{type}", ({**A, **X}, X)),
        ("{topic}", (X, B, {**A, **Y})),
    ],
)
def test_two_entries_that_lead_to_one_table_are_refused(
    template: str, entries: tuple[dict[str, list[str]], ...]
) -> None:
    """Each would land its rows as if it were alone with the table."""
    assert f"should have one entry for the table {template}" in refused(sharing(template, *entries))


@pytest.mark.parametrize(
    ("template", "entries"),
    [
        ("{topic}", (A, B)),
        ("{topic}", (A, {})),
        ("{type}", (X, Y)),
        ("{type}", (X, {})),
        ("{type}", ({**A, **X}, {**B, **Y})),
        ("{topic}_{type}", (A, X, {})),
    ],
)
def test_entries_that_lead_to_tables_of_their_own_may_share_a_template(
    template: str, entries: tuple[dict[str, list[str]], ...]
) -> None:
    assert len(loaded(sharing(template, *entries)).streams[0].tables) == len(entries)


# -- where a value comes from -----------------------------------------------------------------------------


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    for name, text in (("p.toml", TOML), ("p.yaml", YAML), ("p.yml", YAML)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    toml, yaml, yml = (loaded({}, path=tmp_path / name) for name in ("p.toml", "p.yaml", "p.yml"))
    assert toml == yaml == yml
    (table,) = toml.streams[0].tables
    assert (toml.streams[0].every, table.target_file_size, table.columns[0].required) == (0.25, 64 * 2**20, True)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TOML, encoding="utf-8")
    environment = {"LAKEHOUSE_INGEST_SOURCE__BROKERS": "env:1", "LAKEHOUSE_INGEST_CATALOG__NAMESPACE": "env"}
    found = loaded({"source": {"brokers": "cli:1"}}, environment, path)
    assert (found.source.brokers, found.catalog.namespace, found.catalog.uri) == (
        "cli:1",
        "env",
        "http://localhost:8181",
    )
    assert found.source.options == {"client.id": "x"}, "what nobody overrides stays"


def test_the_command_line_reaches_into_the_only_stream_and_its_only_table(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TOML, encoding="utf-8")
    tree = from_flags({"--name": None, "--brokers": "cli:1", "--every": "0s", "--event-time": "ts"}).values
    found = loaded(tree, path=path)
    (stream,) = found.streams
    assert (found.name, found.source.brokers, stream.topics, stream.every) == ("plant-7", "cli:1", ("sensors",), 0)
    assert (stream.tables[0].table, stream.tables[0].event_time) == ("measured", "ts")


def test_a_declared_column_is_replaced_and_not_mixed_with_the_one_below(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TOML, encoding="utf-8")
    over = {"streams": [{"tables": [{"columns": [{"name": "other", "type": "Utf8"}]}]}]}
    (column,) = loaded(over, path=path).streams[0].tables[0].columns
    assert (column.name, column.required) == ("other", False)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(YAML, encoding="utf-8")
    assert loaded({}, {"LAKEHOUSE_INGEST_CONFIG": str(path)}).name == "plant-7"


def test_lists_in_the_environment_are_written_as_yaml() -> None:
    environment = {
        "LAKEHOUSE_INGEST_STREAMS": "[{topics: [a, b], every: 1m}]",
        "LAKEHOUSE_INGEST_NAME": "two",
        "LAKEHOUSE_INGEST_SOURCE__OPTIONS": "{client.id: me}",
        "LAKEHOUSE_INGEST_LEDGER__KEEP_SNAPSHOTS": "7",
        "LAKEHOUSE_INGEST_TELEMETRY__TRACES": "true",
        "SOMEBODY_ELSES": "1",
    }
    found = loaded({}, environment)
    assert (found.streams[0].topics, found.streams[0].every) == (("a", "b"), 60)
    assert (found.source.options, found.ledger.keep_snapshots) == ({"client.id": "me"}, 7)
    assert found.telemetry.traces is True


def test_a_token_of_digits_in_the_environment_stays_text() -> None:
    found = loaded(environment={"LAKEHOUSE_INGEST_CATALOG__TOKEN": "0123"})
    assert found.catalog.token is not None
    assert found.catalog.token.get_secret_value() == "0123"


def test_a_section_and_a_key_in_it_may_both_come_from_the_environment() -> None:
    environment = {"LAKEHOUSE_INGEST_CATALOG__NAMESPACE": "ns", "LAKEHOUSE_INGEST_CATALOG": "{uri: 'http://x'}"}
    found = loaded(environment=environment)
    assert (found.catalog.namespace, found.catalog.uri) == ("ns", "http://x")


def test_a_value_where_the_environment_also_sets_a_key_within_is_refused_with_the_variable() -> None:
    environment = {"LAKEHOUSE_INGEST_CATALOG": SECRET, "LAKEHOUSE_INGEST_CATALOG__URI": "http://x"}
    sentence = refused(environment=environment)
    assert "LAKEHOUSE_INGEST_CATALOG__URI" in sentence
    assert SECRET not in sentence


def test_every_setting_but_the_topic_has_a_default() -> None:
    found = loaded()
    assert (found.name, found.source.brokers, found.streams[0].every) == ("sensors", "localhost:9092", 5.0)


def test_settings_cannot_be_changed_later() -> None:
    with pytest.raises(ValueError, match="frozen"):
        loaded().name = "other"


# -- what is refused --------------------------------------------------------------------------------------


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
def test_an_unknown_key_is_refused_naming_the_nearest(tree: dict[str, Any], unknown: str, nearest: str) -> None:
    assert refused({**ONE_TOPIC, **tree}) == f"unknown setting `{unknown}`; did you mean `{nearest}`?"


def test_a_misspelled_section_is_named_before_what_it_left_missing() -> None:
    assert refused({"stream": [{"topics": ["a"]}]}) == "unknown setting `stream`; did you mean `streams`?"


def test_a_value_is_shown_as_it_was_written() -> None:
    sentence = refused({**ONE_TOPIC, "source": {"security": {"mechanism": "aws_msk_iam"}}})
    assert sentence.endswith("not 'aws_msk_iam'")


def test_a_pattern_needs_a_name_and_says_why() -> None:
    sentence = refused({"streams": [{"topic_pattern": "a.*"}]})
    assert sentence == "the setting `name` is missing: with a `topic_pattern` the pipeline needs a name of its own"


def test_an_unknown_key_that_is_near_nothing_is_refused_with_what_there_is() -> None:
    sentence = refused({**ONE_TOPIC, "retry": {"zzz": 1}})
    assert sentence == "unknown setting `retry.zzz`; known here: first, limit"


@pytest.mark.parametrize(
    ("variable", "value", "unknown", "nearest"),
    [
        ("LAKEHOUSE_INGEST_CATALOG__URL", "http://x", "catalog.url", "uri"),
        ("LAKEHOUSE_INGEST_SOURCES__BROKERS", "x", "sources", "source"),
        ("LAKEHOUSE_INGEST_STREAMS", "[{topics: [a], tables: [{tabel: x}]}]", "streams.0.tables.0.tabel", "table"),
    ],
)
def test_an_unknown_variable_with_our_prefix_is_refused(variable: str, value: str, unknown: str, nearest: str) -> None:
    sentence = refused(environment={variable: value})
    assert sentence == f"unknown setting `{unknown}` ({variable}); did you mean `{nearest}`?"


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
        ({"name": "x", "streams": [{"topics": ["a"]}, {"topics": ["b"]}]}, "streams", "each have a `name`, except one"),
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
def test_a_wrong_value_is_one_sentence_that_names_the_setting(tree: dict[str, Any], setting: str, says: str) -> None:
    sentence = refused(tree)
    assert f"`{setting}`" in sentence
    assert says in sentence


@pytest.mark.parametrize(
    ("text", "found"), [("5s", 5), ("250ms", 0.25), ("10m", 600), ("1h", 3600), (" 2 s", 2), (3, 3)]
)
def test_durations(text: str | int, found: float) -> None:
    assert loaded(in_stream(every=text)).streams[0].every == found


@pytest.mark.parametrize(("text", "found"), [("1KiB", 1024), ("128MiB", 2**27), ("1 GiB", 2**30), ("77", 77), (5, 5)])
def test_sizes(text: str | int, found: int) -> None:
    assert loaded(in_table(target_file_size=text)).streams[0].tables[0].target_file_size == found


def test_several_topics_need_a_name_that_does_not_grow_with_the_list() -> None:
    sentence = refused({"streams": [{"topics": ["a", "b"]}]})
    assert sentence == "the setting `name` is missing: with more than one topic the pipeline needs a name of its own"


@pytest.mark.parametrize(
    ("topic", "name"),
    [("sensors", "sensors"), ("plant-7", "plant-7"), ("Plant.7", "plant-7-c6e5a194"), ("_x", "x-a01e47cb")],
)
def test_a_single_topic_gives_its_name(topic: str, name: str) -> None:
    assert loaded({"streams": [{"topics": [topic]}]}).name == name


def test_nothing_at_all_says_what_the_least_is() -> None:
    assert "--topics" in refused({})


def test_a_missing_file_is_one_sentence_with_its_path(tmp_path: Path) -> None:
    assert refused(path=tmp_path / "gone.toml") == (
        f"the settings file {tmp_path / 'gone.toml'} can't be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.toml", f'name = "x"\n[catalog]\ntoken = "{SECRET}'),
        ("p.toml", f"[catalog]\ntoken = {SECRET}"),
        ("p.yaml", f'catalog:\n  token: "{SECRET}\n'),
        ("p.yaml", f"catalog:\n  token: *{SECRET}\n"),
        ("p.yaml", f"catalog:\n  token: !{SECRET} x\n"),
        ("p.yaml", f"catalog: {{token: {SECRET}: x: [}}\n"),
        ("p.yaml", "when: 2024-99-99\n"),
        ("p.yaml", "a: 1\n---\nb: 2\n"),
        ("p.yaml", "- a list\n"),
        ("p.toml", b"name = '\xff'"),
        ("p.json", "{}"),
    ],
)
def test_a_malformed_file_is_one_sentence_with_its_path_and_without_its_text(
    tmp_path: Path, name: str, text: str | bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    sentence = refused(path=path)
    assert str(path) in sentence
    assert SECRET not in sentence


# -- secrets ----------------------------------------------------------------------------------------------


def test_no_secret_is_shown() -> None:
    found = loaded(
        {
            **ONE_TOPIC,
            "catalog": {
                "uri": f"http://me:{SECRET}@host/",
                "token": SECRET,
                "properties": {"s3.secret-access-key": SECRET},
            },
            "source": {"options": {"sasl.password": SECRET}},
            "spark": {"options": {"spark.hadoop.fs.s3a.secret.key": SECRET}},
            "telemetry": {"headers": {"authorization": SECRET}, "endpoint": f"http://me:{SECRET}@host/"},
        }
    )
    assert SECRET not in repr(found)
    assert SECRET not in str(found)
    assert SECRET not in f"{found.catalog} {found.source!r} {found.streams}"
    assert "s3.secret-access-key" in repr(found), "which ones are set may be seen"
    assert found.catalog.token is not None
    assert found.catalog.token.get_secret_value() == SECRET


@pytest.mark.parametrize(
    "tree",
    [
        {"catalog": {"token": [SECRET]}},
        {"catalog": {"token": {"value": SECRET}}},
        {"catalog": [{"token": SECRET}]},
        {"catalog": {"uri": [f"http://me:{SECRET}@host/"]}},
        {"catalog": f"{{token: {SECRET}"},
        {"catalog": f"http://me:{SECRET}@host/"},
        {"catalog": {"tokn": SECRET}},
        {"catalog": {"properties": {"s3.secret-access-key": [SECRET]}}},
        {"catalog": {"properties": SECRET}},
        {"source": {"options": {"sasl.password": {"x": SECRET}}}},
        {"source": {"options": SECRET}},
        {"telemetry": {"headers": {"authorization": [SECRET]}}},
        {"telemetry": [{"headers": {"authorization": SECRET}}]},
    ],
)
def test_no_refusal_shows_a_secret(tree: dict[str, Any]) -> None:
    assert SECRET not in refused({**ONE_TOPIC, **tree})


def test_no_refusal_of_the_environment_shows_a_secret() -> None:
    for variable, value in (
        ("LAKEHOUSE_INGEST_CATALOG", f"{{token: {SECRET}"),
        ("LAKEHOUSE_INGEST_CATALOG__TOKEN", f"[{SECRET}]"),
        ("LAKEHOUSE_INGEST_CATALOG__TOKN", SECRET),
    ):
        assert SECRET not in refused(environment={variable: value})


# -- partitions -------------------------------------------------------------------------------------------


def test_partitions_are_stated_by_topic() -> None:
    found = loaded({"streams": [{"topics": ["a.b"]}], "source": {"partitions": {"a.b": [3, 1]}}})
    assert found.source.partitions == {"a.b": (1, 3)}
    found = loaded(environment={"LAKEHOUSE_INGEST_SOURCE__PARTITIONS": '{"sensors": [0]}'})
    assert found.source.partitions == {"sensors": (0,)}


@pytest.mark.parametrize(
    "wrong", [[0], {"t": []}, {"t": [-1]}, {"t": [1, 1]}, {"t": 1}, {"t": ["x"]}, {"t": [True]}, "x:"]
)
def test_partitions_that_make_no_sense_are_refused(wrong: object) -> None:
    assert "such as { topic = [0, 1] }" in refused({"source": {"partitions": wrong}})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        *((name, "x", f"{name}, which is {needed} here: {why}") for name, (needed, why) in RELIED_ON.items()),
        *((f"{start}x", "x", why) for start, why in NOT_TAKEN.items()),
        ("spark.sql.catalog.lake", "x", "the same catalog"),
        ("spark.sql.catalog.lake.cache-enabled", "true", "the same catalog"),
        ("spark.sql.session.timeZone", "UTC, CET", "a time without a zone is in UTC"),
    ],
)
def test_what_a_pipeline_relies_on_of_spark_is_not_for_its_settings(option: str, value: str, said: str) -> None:
    sentence = refused({**ONE_TOPIC, "spark": {"options": {option: value}}})
    assert sentence.startswith(f"the setting `spark.options` should not set {option}")
    assert said in sentence
    assert len(sentence) <= LONGEST


def test_spark_may_be_told_what_it_is_told_anyway_and_more() -> None:
    needed = {name: value.upper() for name, (value, _) in RELIED_ON.items()}
    extensions = f"other, {needed['spark.sql.extensions']}"
    more = {"spark.sql.extensions": extensions, "spark.speculation": "true", "spark.sql.catalog.lakehouse": "other"}
    assert SparkSettings(options={**needed, **more}).options == {**needed, **more}


def test_a_table_that_could_not_be_begun_is_refused() -> None:
    tables = [{"properties": {"format-version": "3"}}]
    sentence = refused({"streams": [{"topics": ["sensors"], "tables": tables}]})
    assert sentence.startswith("the setting `streams.0.tables.0.properties` should have format-version 1 or 2")


@pytest.mark.parametrize("key", ["spark.driver.extraClassPath=/tmp/evil.jar:", "spark.a b", "spark.a\nspark.b", ""])
def test_a_key_of_sparks_holds_no_other_setting(key: str) -> None:
    """Spark's launcher reads the first `=` as the end of the key."""
    with pytest.raises(ValueError, match="should have no key such as"):
        SparkSettings(options={key: "x"})
