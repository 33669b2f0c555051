"""What the settings say of themselves: a reference, examples that load, where each value came from."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse_ingest.cli import options
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import Layer, Loaded, foreign, from_flags, layers, load, load_settings, reference
from lakehouse_ingest.settings.line_numbers import of_toml, of_yaml

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-planted"
TOML = """\
name = "plant-7"

[source]
brokers = "kafka:9092"
security.username = "me"
security.password = "s3cr3t-planted"
[source.options]
"client.id" = "x"

[[streams]]
topics = [
    "a",
]
name = "one"
[[streams.tables]]
table = "x"
[[streams.tables]]
table = "y"
[[streams]]
topics = ["b"]
[[streams.tables]]
codec = "gzip"
"""
PLACES = {
    ("name",): 1,
    ("source",): 3,
    ("source", "brokers"): 4,
    ("source", "options", "client.id"): 8,
    ("streams", 0, "topics"): 11,
    ("streams", 0, "name"): 14,
    ("streams", 0, "tables", 1, "table"): 18,
    ("streams", 1, "topics"): 20,
    ("streams", 1, "tables", 0, "codec"): 22,
}


def loaded(path: Path | None = None, environment: dict[str, str] | None = None, **flags: Any) -> Loaded:
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    return load(path, from_flags(given), environment or {})


def _set_as(key: str) -> str:
    return rf"""(?:["'\s({{\\n]|^){key}["']?\s*[:=]|__{key.upper()}\b|--{key.replace("_", "-")}\b"""


class TestReference:
    def test_describes_every_setting_and_its_values(self) -> None:
        for entry in reference.entries():
            if not entry.model:
                assert entry.description, entry.name
                assert entry.kind, entry.name
                assert entry.default is not None or entry.sample is not None, entry.name

    def test_has_no_setting_without_a_test(self) -> None:
        """At least set somewhere: by its name, as a key of TOML, of a mapping, of a keyword, or as a variable."""
        others = [file for file in (ROOT / "tests").rglob("*.py") if file.name != Path(__file__).name]
        text = "\n".join(file.read_text(encoding="utf-8") for file in others)
        names = {entry.name for entry in reference.entries() if not entry.model}
        unused = {name for name in names if not re.search(_set_as(name.rpartition(".")[2]), text)}
        assert not unused

    def test_has_a_help_text_for_every_flag(self) -> None:
        """Two tables, since help is shown without loading the settings; `run` takes all of them."""
        assert options.FLAGS.keys() == layers.FLAGS.keys()


class TestExampleFile:
    @pytest.mark.parametrize("form", ["toml", "yaml"])
    def test_with_all_settings_equals_the_defaults(self, form: Any) -> None:
        text = reference.example(form)
        tree = tomllib.loads(text) if form == "toml" else yaml.safe_load(text)
        assert load_settings(None, tree, {}) == load_settings(
            None, {"name": "plant-7", "streams": [{"topics": ["sensors"]}]}, {}
        )

    @pytest.mark.parametrize("form", ["toml", "yaml"])
    def test_has_valid_settings_in_its_comments(self, form: Any) -> None:
        """But for those that exclude one another, or name files that are not here."""
        others = (
            "topic_pattern",
            "ca",
            "certificate",
            "key",
            "key_password",
            "token_url",
            "client_id",
            "client_secret",
        )
        keep = re.compile(rf"^(\s*)#(?! )(?!(?:{'|'.join(others)})\b)", re.MULTILINE)
        text = keep.sub(r"\1", reference.example(form))
        tree = tomllib.loads(text) if form == "toml" else yaml.safe_load(text)
        assert load_settings(None, tree, {}).catalog.uri == "http://localhost:8181"

    def test_in_the_repository_is_the_one_that_is_printed(self) -> None:
        kept = (ROOT / "deploy" / "examples" / "every-setting.toml").read_text(encoding="utf-8")
        assert kept == reference.example("toml"), (
            "lakehouse-ingest settings --example toml > deploy/examples/every-setting.toml"
        )


class TestOrigin:
    def test_of_a_toml_key_is_its_line(self) -> None:
        found = of_toml(TOML)
        assert {place: found.get(place) for place in PLACES} == PLACES

    def test_of_a_yaml_key_is_its_line(self) -> None:
        text = yaml.safe_dump(tomllib.loads(TOML), sort_keys=False)
        found, lines = of_yaml(text), text.splitlines()
        for place in PLACES:
            assert str(place[-1]) in lines[found[place] - 1]

    def test_of_each_value_is_known(self, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(TOML.partition('[[streams]]\ntopics = ["b"]')[0], encoding="utf-8")
        found = loaded(path, {"LAKEHOUSE_INGEST_CATALOG__URI": "http://x"}, brokers="other:1")
        assert found.origin_of(("source", "brokers")) == "--brokers"
        assert found.origin_of(("catalog", "uri")) == "LAKEHOUSE_INGEST_CATALOG__URI"
        assert found.origin_of(("streams", 0, "tables", 1, "table")) == "p.toml line 18"
        assert found.origin_of(("retry", "first")) == ""
        values = dict(reference.in_force(found.settings))
        assert values["source", "brokers"] == "other:1"
        assert SECRET not in str(values)

    def test_of_a_value_is_in_its_refusal(self, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(TOML.replace('codec = "gzip"', 'codec = "rar"'), encoding="utf-8")
        with pytest.raises(
            SettingsRefused, match=r"`streams\.1\.tables\.0\.codec` \(p\.toml line 22\) should be 'zstd'.*, not 'rar'"
        ):
            loaded(path)
        with pytest.raises(SettingsRefused, match=r"`source\.start` \(--start\) should be 'earliest'"):
            loaded(topics=["a"], start="soon")
        with pytest.raises(
            SettingsRefused, match=r"`retry\.limit` \(LAKEHOUSE_INGEST_RETRY__LIMIT\) should be a duration"
        ):
            loaded(environment={"LAKEHOUSE_INGEST_RETRY__LIMIT": "soon"}, topics=["a"])

    def test_is_added_to_any_message_that_names_a_setting(self) -> None:
        found = loaded(environment={"LAKEHOUSE_INGEST_CATALOG__TOKEN": SECRET}, topics=["a"], brokers="b:1")
        said = found.explained("no answer at b:1: mend `source.brokers` or `streams.topics`")
        assert said == "no answer at b:1: mend `source.brokers` (--brokers) or `streams.topics`"
        assert found.explained("mend `streams.topics`") == "mend `streams.topics` (--topics)"
        assert found.explained("mend `retry.limit` and `nothing.known`") == "mend `retry.limit` and `nothing.known`"
        assert "LAKEHOUSE_INGEST_CATALOG__TOKEN" in found.explained("refused: `catalog.token`")

    def test_ignores_keys_within_text_of_several_lines(self) -> None:
        text = 'a = """\n[catalog]\nuri = 1\n"""\n[catalog]\nuri = "x"\n'
        assert of_toml(text)["catalog", "uri"] == 6
        assert of_toml("a = 'x\u2028y'\nb = 1\n")[("b",)] == 2

    def test_of_a_name_is_not_that_of_a_column(self, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(
            '[[streams]]\ntopics = ["a"]\n[[streams.tables]]\ntopics = ["a"]\ncolumns = [{ name = "n", type = '
            '"long" }]\n'
        )
        found = loaded(path)
        assert found.explained("start under another `name`") == "start under another `name`"
        assert found.explained("mend `topics`") == "mend `topics` (p.toml line 2)"


class TestValues:
    def test_of_foreign_variables_are_answered_with_our_setting(self) -> None:
        assert foreign({"KAFKA_BROKERS": "x", "HOME": "/"}) == {"KAFKA_BROKERS": "source.brokers"}

    def test_of_secrets_may_come_from_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(f"{SECRET}\n", encoding="utf-8")
        tree = {"streams": [{"topics": ["a"]}], "catalog": {"token": {"file": str(tmp_path / "token")}}}
        token = load(None, Layer(tree), {}).settings.catalog.token
        assert token
        assert token.get_secret_value() == SECRET
        environment = {"LAKEHOUSE_INGEST_CATALOG__TOKEN__FILE": str(tmp_path / "token")}
        assert loaded(environment=environment, topics=["a"]).settings.catalog.token == token
        with pytest.raises(SettingsRefused, match=r"TOKEN__FILE\) names a file that can't be read \(No such file"):
            loaded(environment={"LAKEHOUSE_INGEST_CATALOG__TOKEN__FILE": str(tmp_path / "gone")}, topics=["a"])

    def test_of_certificates_are_a_file_or_the_text_itself(self, tmp_path: Path) -> None:
        text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        (tmp_path / "ca.pem").write_text(text, encoding="utf-8")
        (tmp_path / "no.pem").write_text("nothing", encoding="utf-8")
        by_file = loaded(environment={"LAKEHOUSE_INGEST_SOURCE__SECURITY__CA": str(tmp_path / "ca.pem")}, topics=["a"])
        by_text = loaded(environment={"LAKEHOUSE_INGEST_SOURCE__SECURITY__CA": text}, topics=["a"])
        assert by_file.settings == by_text.settings
        assert by_file.settings.source.security.over == "ssl"
        with pytest.raises(SettingsRefused, match=r"`source\.security\.ca` .* should be PEM"):
            loaded(environment={"LAKEHOUSE_INGEST_SOURCE__SECURITY__CA": str(tmp_path / "no.pem")}, topics=["a"])

    @pytest.mark.parametrize(
        ("security", "says"),
        [
            ({"username": "me"}, "both `username` and `password`"),
            ({"mechanism": "PLAIN"}, "`username` and `password` for PLAIN"),
            ({"mechanism": "oauthbearer"}, "`token_url`, `client_id`"),
            ({"protocol": "ssl", "username": "me", "password": "x"}, "sasl_ssl or sasl_plaintext for PLAIN, not ssl"),
            ({"protocol": "SASL_SSL"}, "a `mechanism` for sasl_ssl"),
            ({"protocol": "tls"}, "'plaintext', 'ssl'"),
            ({"client_id": "x", "client_secret": "y"}, "OAUTHBEARER and a `token_url`"),
            ({"token_url": "http://x", "username": "me", "password": "y"}, "OAUTHBEARER and a `token_url`"),
            ({"protocol": "plaintext", "ca": "-----BEGIN CERTIFICATE-----"}, "ssl or sasl_ssl for `ca`"),
            ({"key_password": "x"}, "a `key` for the `key_password`"),
        ],
    )
    def test_of_incomplete_security_are_refused(self, security: dict[str, str], says: str) -> None:
        with pytest.raises(SettingsRefused) as refusal:
            load_settings(None, {"streams": [{"topics": ["a"]}], "source": {"security": security}}, {})
        assert says in str(refusal.value)

    @pytest.mark.parametrize(
        ("written", "found"),
        [
            ("latest", "latest"),
            ('{"t": {"0": 42}}', {"t": {0: 42}}),
            ('{"0": 42, "1": 7}', {"": {0: 42, 1: 7}}),
            ({"t": {0: 42}}, {"t": {0: 42}}),
        ],
    )
    def test_of_start_are_a_word_or_offsets(self, written: Any, found: Any) -> None:
        assert loaded(topics=["t"], start=written).settings.source.start == found

    def test_of_start_may_be_a_time_with_its_zone(self) -> None:
        moment = loaded(topics=["t"], start="2026-11-18T01:00:00+01:00").settings.source.start
        assert str(moment) == "2026-11-18 00:00:00+00:00"
        for wrong in ("2026-11-18", "2026-11-18T01:00:00", "{0: x}", '{"t": {"0": -1}}'):
            with pytest.raises(SettingsRefused, match="start"):
                loaded(topics=["t"], start=wrong)

    def test_in_a_file_may_follow_a_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "p.toml").write_text('[[streams]]\ntopics = ["a"]\n', encoding="utf-8-sig")
        assert loaded(tmp_path / "p.toml").settings.name == "a"

    def test_of_variables_that_are_not_ours_are_ignored(self) -> None:
        """Those of a Service in Kubernetes, and the case of keys within tables that are not ours."""
        environment = {
            "LAKEHOUSE_INGEST_PORT": "tcp://10.0.0.1:80",
            "LAKEHOUSE_INGEST_SERVICE_HOST": "10.0.0.1",
            "LAKEHOUSE_INGEST_PORT_80_TCP_ADDR": "10.0.0.1",
            "LAKEHOUSE_INGEST_CONFIG": "",
            "LAKEHOUSE_INGEST_SPARK__OPTIONS__spark.executor.extraJavaOptions": "-Dx=y",
        }
        options = loaded(environment=environment, topics=["a"]).settings.spark.options
        assert options == {"spark.executor.extraJavaOptions": "-Dx=y"}

    @pytest.mark.parametrize(
        ("text", "flags", "says"),
        [
            ('[streams]\nevery = "1s"\n', {"topics": ["b"]}, r"`streams` should be a list"),
            (
                "",
                {"topics": ["b"], "warehouse": "s3://bucket/x"},
                r"`catalog.path` \(--warehouse\) .*`catalog.warehouse`",
            ),
            ("[retry]\nfirst = 0\n", {"topics": ["b"]}, r"`retry.first` .* greater than 0"),
            ("[retry]\nlimit = inf\n", {"topics": ["b"]}, r"`retry.limit` .* duration"),
            ('[source]\nstart = "0001-01-01T00:00:00+14:00"\n', {"topics": ["b"]}, r"`source.start` .* a time"),
            ("a: &a [*a]", {"topics": ["b"]}, r"not well formed|unknown setting"),
            (
                'name = "x"\n[source]\nseek = {0 = 41}\n[[streams]]\ntopic_pattern = "x.*"\n',
                {},
                r"name the topics in `source.seek`",
            ),
            ('[catalog.token]\nfile = "~nobody-here/x"\n', {"topics": ["b"]}, r"`catalog.token` .*can't be read"),
        ],
    )
    def test_of_the_wrong_shape_are_refused_in_a_sentence(
        self, text: str, flags: dict[str, Any], says: str, tmp_path: Path
    ) -> None:
        path = tmp_path / ("p.yaml" if text.startswith("a:") else "p.toml")
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SettingsRefused, match=says):
            loaded(path, **flags)
