"""What the Kafka client is given, and what is refused before it is asked."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.errors import LONGEST, SettingsRefused, TryAgain
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.sources.kafka import refusals
from lakehouse_ingest.stages.sources.kafka import source as kafka
from lakehouse_ingest.stages.sources.kafka.client_options import (
    BOTH,
    KNOWN,
    ONLY_JAVA,
    ONLY_LIBRDKAFKA,
    OURS,
    known_options,
)
from lakehouse_ingest.stages.sources.kafka.clients import for_librdkafka
from lakehouse_ingest.stages.sources.kafka.refusals import of_text
from tests.services.young_broker import young_broker

ROOT = Path(__file__).parents[2]
CA, CERTIFICATE, KEY = (f"-----BEGIN {what}-----\nabc\n" for what in ("CERTIFICATE", "CERTIFICATE", "PRIVATE KEY"))


def source(**security: Any) -> SourceSettings:
    return SourceSettings.model_validate({"brokers": "b:1", "security": security})


class TestClientSettings:
    def test_without_security_are_plaintext(self) -> None:
        assert for_librdkafka(source())["security.protocol"] == "plaintext"
        assert not [key for key in for_librdkafka(source()) if "sasl" in key or ".pem" in key]

    def test_hold_user_and_password(self) -> None:
        given = for_librdkafka(source(username="u", password="p", ca=CA))
        assert (given["security.protocol"], given["sasl.mechanism"]) == ("sasl_ssl", "PLAIN")
        assert (given["sasl.username"], given["sasl.password"], given["ssl.ca.pem"]) == ("u", "p", CA)

    def test_hold_a_password_of_any_characters(self) -> None:
        """The broker of the live tests asks for one like that."""
        given = for_librdkafka(source(username='a"b', password='\\";\n=', mechanism="SCRAM-SHA-256"))
        assert (given["sasl.username"], given["sasl.password"]) == ('a"b', '\\";\n=')

    @pytest.mark.parametrize("kind", ["PRIVATE KEY", "RSA PRIVATE KEY"])
    def test_hold_a_certificate_with_its_key_and_password(self, kind: str) -> None:
        key = KEY.replace("PRIVATE KEY", kind)
        given = for_librdkafka(source(certificate=CERTIFICATE, key=key, key_password="p"))
        assert (given["ssl.certificate.pem"], given["ssl.key.pem"], given["ssl.key.password"]) == (
            CERTIFICATE,
            key,
            "p",
        )

    def test_hold_the_token_endpoint_and_client(self) -> None:
        given = for_librdkafka(source(token_url="http://t", client_id="c", client_secret="s", scope="all"))
        assert given["sasl.oauthbearer.token.endpoint.url"] == "http://t"
        assert (given["sasl.oauthbearer.client.id"], given["sasl.oauthbearer.client.secret"]) == ("c", "s")
        assert (given["sasl.oauthbearer.method"], given["sasl.oauthbearer.scope"]) == ("oidc", "all")

    @pytest.mark.parametrize(("verify", "said"), [(True, "https"), (False, "none")])
    def test_verify_the_host_name_or_not(self, *, verify: bool, said: str) -> None:
        given = source(ca=CA, verify_hostname=verify)
        assert for_librdkafka(given)["ssl.endpoint.identification.algorithm"] == said


class TestOption:
    @pytest.mark.parametrize("spelling", ["session.timeout.ms", "session_timeout_ms"])
    def test_is_known_in_any_spelling(self, spelling: str) -> None:
        assert known_options({spelling: "7"}) == {"session.timeout.ms": "7"}

    def test_of_the_java_client_only_is_refused_by_name(self) -> None:
        with pytest.raises(SettingsRefused, match=r"only Kafka's Java client knows max_poll_records.*leave it out"):
            known_options({"max_poll_records": "7", "queued.max.messages.kbytes": "8"})

    @pytest.mark.parametrize(
        ("key", "ours"),
        [
            ("auto_offset_reset", "`source.start`"),
            ("bootstrap.servers", "`source.brokers`"),
            ("group_id", "`name`"),
            ("isolation.level", "`source.isolation`"),
            ("enable.auto.commit", "nothing: offsets live in the tables"),
            ("value_deserializer", "nothing: records are read as bytes"),
            ("ssl_cafile", "`source.security.ca`"),
            ("ssl.truststore.location", "`source.security.ca`"),
            ("ssl.certificate.location", "`source.security.certificate`"),
            ("ssl_keyfile", "`source.security.key`"),
            ("sasl_plain_password", "`source.security.password`"),
            ("sasl.jaas.config", "`source.security.username` and `source.security.password`"),
            ("security_protocol", "`source.security.protocol`"),
            ("ssl_check_hostname", "`source.security.verify_hostname`"),
        ],
    )
    def test_that_we_have_a_setting_for_is_refused_with_it(self, key: str, ours: str) -> None:
        with pytest.raises(SettingsRefused, match=re.escape(f"can't hold {key}; use {ours}")):
            known_options({key: "secret"})

    @pytest.mark.parametrize(
        ("key", "hint"),
        [("fetch.min.byte", "; did you mean fetch.min.bytes?"), ("ssl_ca_file", "; did you mean"), ("x", "")],
    )
    def test_that_is_unknown_is_refused_with_the_nearest(self, key: str, hint: str) -> None:
        with pytest.raises(
            SettingsRefused, match=f"no Kafka consumer knows {key} in `source.options`{re.escape(hint)}"
        ):
            known_options({key: "secret"})

    def test_is_in_one_list_only(self) -> None:
        lists = (BOTH, ONLY_JAVA, ONLY_LIBRDKAFKA, OURS.keys())
        assert len(frozenset().union(*lists)) == sum(map(len, lists))

    def test_is_refused_only_with_a_setting_that_exists(self) -> None:
        fields = {f"source.{name}" for name in SourceSettings.model_fields}
        fields |= {f"source.security.{name}" for name in type(SourceSettings().security).model_fields}
        named = {each for ours in OURS.values() if not ours.startswith("nothing") for each in ours.split(" and ")}
        assert named <= fields | {"name"}

    @pytest.mark.parametrize("name", sorted(KNOWN))
    def test_in_our_lists_is_known_to_librdkafka(self, name: str) -> None:
        """It refuses an unknown one with other words than a value."""
        said = ""
        try:
            AdminClient({name: "?", "log_level": 0})
        except KafkaException as refusal:
            said = refusal.args[0].str()
        assert "No such configuration property" not in said


class TestKafkaError:
    def test_of_a_refused_value_names_the_option(self) -> None:
        failure = of_text('Invalid value for configuration property "fetch.min.bytes"', source())
        assert "fetch.min.bytes" in str(failure)

    @pytest.mark.parametrize(
        ("answer", "error", "names"),
        [
            ("Unauthorized (401)", SettingsRefused, "`source.security.client_secret`"),
            ("Service Unavailable (503)", TryAgain, "`source.security.token_url`"),
            ("Failed to connect to host (-1)", TryAgain, "`source.security.token_url`"),
        ],
    )
    def test_of_a_token_server_is_an_outage_unless_it_refuses(self, answer: str, error: type, names: str) -> None:
        """Whatever words its address holds."""
        url = "https://keycloak.example.com/realms/x/protocol/openid-connect/token"
        failure = of_text(
            f'Failed to acquire SASL OAUTHBEARER token: Failed to retrieve OIDC token from "{url}": {answer}', source()
        )
        assert type(failure) is error
        assert names in str(failure)

    def test_stays_short_however_many_brokers_there_are(self) -> None:
        many = SourceSettings.model_validate({"brokers": ",".join(f"broker-{n}.example.com:9092" for n in range(50))})
        failure = of_text("SASL authentication error: no", many)
        assert len(str(failure)) <= LONGEST
        assert failure is not None
        assert "`source.security`" in str(failure)

    def test_that_may_pass_is_no_refusal(self) -> None:
        assert of_text("Connect to ipv4#127.0.0.1:1 failed: Connection refused", source()) is None

    @pytest.mark.parametrize(
        "said",
        [
            (
                "ssl://h:1/bootstrap: SSL handshake failed: wrong version number: connecting to a PLAINTEXT broker "
                "listener?"
            ),
            "ssl://h:1/bootstrap: Disconnected: SSL connection closed by peer (after 5ms in state SSL_HANDSHAKE)",
        ],
        ids=["told", "hung up"],
    )
    def test_of_tls_to_a_plaintext_broker_is_recognised(self, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A broker that takes a greeting in TLS for a record of 369 MB answers or hangs up, whichever comes first."""
        errors = [KafkaError(KafkaError._SSL, said)]
        monkeypatch.setattr(refusals, "_answers_in_plaintext", lambda _: True)
        assert "speak no TLS" in str(refusals.of_connections(errors, source(protocol="SSL")))
        monkeypatch.setattr(refusals, "_answers_in_plaintext", lambda _: False)
        assert refusals.of_connections(errors, source(protocol="SSL")) is None


class TestQuestion:
    def test_to_a_broker_that_knows_of_none_yet_is_tried_again(
        self,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """An administrator's question about the cluster would end the process here."""
        monkeypatch.setattr(kafka, "ASK_S", 2.0)

        def ask(knowing: int) -> None:
            with young_broker(knowing) as address:
                source = kafka.Kafka(SourceSettings(brokers=address), ["sensors"])
                with pytest.raises(TryAgain):
                    source.identity()

        with ThreadPoolExecutor(4) as together:
            assert len(list(together.map(ask, range(4)))) == 4

    def test_that_was_abandoned_does_not_end_the_process_when_answered(self) -> None:
        """It comes in the client's own thread; if Python collects the client there, librdkafka ends the process."""
        command = [sys.executable, "-m", "tests.services.abandoned_question", "127.0.0.1:1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
        assert (done.returncode, done.stdout) == (0, "1 left to the next source, and 0 by it\n"), done.stderr


class TestGroupOffsets:
    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_are_tried_again_under_each_protocol_of_groups(
        self, protocol: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """librdkafka makes no client with options that the protocol does not have."""
        monkeypatch.setattr(kafka, "ASK_S", 0.5)
        settings = SourceSettings.model_validate({"brokers": "127.0.0.1:1", "options": {"group.protocol": protocol}})
        with pytest.raises(TryAgain, match="did not take the offsets of the group plant in time"):
            kafka.Kafka(settings, ["sensors"]).publish({("sensors", 0): 1}, "plant")
