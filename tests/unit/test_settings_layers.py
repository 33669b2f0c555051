"""Where a setting comes from: file, environment or command line, in one precedence."""

from pathlib import Path

import pytest

from lakehouse_ingest.settings import from_flags
from tests.services.given_settings import SECRET, loaded, refused

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


class TestSettings:
    def test_are_the_same_in_toml_and_yaml(self, tmp_path: Path) -> None:
        for name, text in (("p.toml", TOML), ("p.yaml", YAML), ("p.yml", YAML)):
            (tmp_path / name).write_text(text, encoding="utf-8")
        toml, yaml, yml = (loaded({}, path=tmp_path / name) for name in ("p.toml", "p.yaml", "p.yml"))
        assert toml == yaml == yml
        (table,) = toml.streams[0].tables
        assert (toml.streams[0].every, table.target_file_size, table.columns[0].required) == (0.25, 64 * 2**20, True)

    def test_come_from_the_file_that_the_environment_names(self, tmp_path: Path) -> None:
        path = tmp_path / "p.yaml"
        path.write_text(YAML, encoding="utf-8")
        assert loaded({}, {"LAKEHOUSE_INGEST_CONFIG": str(path)}).name == "plant-7"

    def test_in_the_environment_hold_lists_as_yaml(self) -> None:
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

    def test_in_the_environment_keep_a_token_of_digits_as_text(self) -> None:
        found = loaded(environment={"LAKEHOUSE_INGEST_CATALOG__TOKEN": "0123"})
        assert found.catalog.token is not None
        assert found.catalog.token.get_secret_value() == "0123"


class TestPrecedence:
    def test_is_command_line_then_environment_then_file(self, tmp_path: Path) -> None:
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

    def test_of_the_command_line_extends_to_the_only_stream_and_table(self, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(TOML, encoding="utf-8")
        tree = from_flags({"--name": None, "--brokers": "cli:1", "--every": "0s", "--event-time": "ts"}).values
        found = loaded(tree, path=path)
        (stream,) = found.streams
        assert (found.name, found.source.brokers, stream.topics, stream.every) == ("plant-7", "cli:1", ("sensors",), 0)
        assert (stream.tables[0].table, stream.tables[0].event_time) == ("measured", "ts")

    def test_replaces_a_declared_column_as_a_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(TOML, encoding="utf-8")
        over = {"streams": [{"tables": [{"columns": [{"name": "other", "type": "Utf8"}]}]}]}
        (column,) = loaded(over, path=path).streams[0].tables[0].columns
        assert (column.name, column.required) == ("other", False)

    def test_merges_a_section_and_a_key_of_the_environment(self) -> None:
        environment = {"LAKEHOUSE_INGEST_CATALOG__NAMESPACE": "ns", "LAKEHOUSE_INGEST_CATALOG": "{uri: 'http://x'}"}
        found = loaded(environment=environment)
        assert (found.catalog.namespace, found.catalog.uri) == ("ns", "http://x")

    def test_of_a_plain_value_and_a_key_within_it_is_refused(self) -> None:
        environment = {"LAKEHOUSE_INGEST_CATALOG": SECRET, "LAKEHOUSE_INGEST_CATALOG__URI": "http://x"}
        sentence = refused(environment=environment)
        assert "LAKEHOUSE_INGEST_CATALOG__URI" in sentence
        assert SECRET not in sentence


class TestRefusal:
    @pytest.mark.parametrize(
        ("variable", "value", "unknown", "nearest"),
        [
            ("LAKEHOUSE_INGEST_CATALOG__URL", "http://x", "catalog.url", "uri"),
            ("LAKEHOUSE_INGEST_SOURCES__BROKERS", "x", "sources", "source"),
            ("LAKEHOUSE_INGEST_STREAMS", "[{topics: [a], tables: [{tabel: x}]}]", "streams.0.tables.0.tabel", "table"),
        ],
    )
    def test_of_an_unknown_variable_names_it(self, variable: str, value: str, unknown: str, nearest: str) -> None:
        sentence = refused(environment={variable: value})
        assert sentence == f"unknown setting `{unknown}` ({variable}); did you mean `{nearest}`?"

    def test_of_a_missing_file_has_its_path(self, tmp_path: Path) -> None:
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
    def test_of_a_malformed_file_has_its_path_and_no_secret(self, tmp_path: Path, name: str, text: str | bytes) -> None:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        sentence = refused(path=path)
        assert str(path) in sentence
        assert SECRET not in sentence
