"""A secured broker: records are read with each kind of login, and each refusal says what to fix."""

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, cast
from weakref import ref

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from py4j.protocol import Py4JJavaError
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.pipeline.effects import OnSpark
from lakehouse_ingest.pipeline.task import Work
from lakehouse_ingest.settings import Settings, SourceSettings, StreamSettings, load_settings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.secured_kafka import CLIENT, KEY_PASSWORD, PASSWORD, USER, Secured, secured_kafka

pytestmark = pytest.mark.live

RECORDS = 5
SOON_FREED_S = 30.0  # librdkafka would wait for 45 s


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), jars_folder) as found:
        yield found


@pytest.fixture(scope="module")
def bench(spark: SparkSession, secured: Secured, rest_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(spark, secured.plain, rest_uri, tmp_path_factory.mktemp("pipelines"))


@pytest.fixture
def filled(secured: Secured, topic: str) -> str:
    create_topic(secured.plain, topic)
    produce(secured.plain, topic, ((None, json.dumps({"n": n}).encode()) for n in range(RECORDS)))
    return topic


# -- the ways in ------------------------------------------------------------------------------------------


def login(secured: Secured, **changes: Any) -> dict[str, Any]:
    by_password = {"ca": secured.authority.path("ca.crt"), "username": USER, "password": PASSWORD, **changes}
    return {"brokers": secured.broker.sasl, "security": by_password}


def token(secured: Secured, **changes: Any) -> dict[str, Any]:
    by_token = {
        "ca": secured.authority.path("ca.crt"),
        "token_url": f"{secured.issuer.url}/token",
        "client_id": CLIENT,
        "client_secret": secured.issuer.secret,
        **changes,
    }
    return {"brokers": secured.broker.sasl, "security": by_token}


def certificate(secured: Secured, **changes: Any) -> dict[str, Any]:
    mutual = {
        "ca": secured.authority.path("ca.crt"),
        "certificate": secured.authority.path("client.crt"),
        "key": secured.authority.path("client.key"),
        **changes,
    }
    return {"brokers": secured.broker.tls, "security": mutual}


def lands(bench: Bench, settings: Settings) -> None:
    bench.ingest(settings)
    (stream,) = settings.streams
    (topic,) = stream.topics
    assert len(bench.places(f"{settings.catalog.namespace}.{topic}")) == RECORDS


def said(source: dict[str, Any], kind: type[LakehouseError] = SettingsRefused, topic: str = "any") -> str:
    """The message of a start: one sentence that shows no secret."""
    settings = SourceSettings.model_validate(source)
    with pytest.raises(kind) as failure:
        Kafka(settings, (topic,)).identity()
    sentence = str(failure.value)
    assert type(failure.value) is kind, sentence
    assert len(sentence) <= 200
    assert PASSWORD not in sentence
    print(sentence)
    return sentence


class TestLogin:
    def test_by_password_gets_every_record(self, bench: Bench, secured: Secured, filled: str) -> None:
        """The password has quotes and backslashes."""
        lands(bench, bench.settings(filled, source=login(secured)))

    def test_by_scram_gets_every_record(self, bench: Bench, secured: Secured, filled: str) -> None:
        lands(bench, bench.settings(filled, source=login(secured, protocol="SASL_SSL", mechanism="SCRAM-SHA-512")))

    def test_by_token_gets_every_record(self, bench: Bench, secured: Secured, filled: str) -> None:
        lands(bench, bench.settings(filled, source=token(secured)))

    def test_by_certificate_gets_every_record(self, bench: Bench, secured: Secured, filled: str) -> None:
        lands(bench, bench.settings(filled, source=certificate(secured)))

    def test_by_certificate_with_a_locked_key_gets_every_record(
        self, bench: Bench, secured: Secured, filled: str
    ) -> None:
        locked = {"key": secured.authority.lock("client", KEY_PASSWORD), "key_password": KEY_PASSWORD}
        lands(bench, bench.settings(filled, source=certificate(secured, **locked)))

    def test_by_certificate_from_the_environment_gets_every_record(
        self, bench: Bench, secured: Secured, filled: str
    ) -> None:
        """As text, for what starts us may have no file to give."""
        prefix = "LAKEHOUSE_INGEST_SOURCE__SECURITY__"
        environment = {
            f"{prefix}{name.upper()}": secured.authority.text(file)
            for name, file in {"ca": "ca.crt", "certificate": "client.crt", "key": "client.key"}.items()
        }
        plain = bench.settings(filled, source={"brokers": secured.broker.tls})
        tree = plain.model_dump(mode="json", exclude_unset=True)
        settings = load_settings(None, tree, environment)
        assert settings.source.security.certificate
        lands(bench, settings)

    def test_without_a_check_of_the_host_name_gets_every_record(
        self, bench: Bench, secured: Secured, filled: str
    ) -> None:
        ca = secured.authority.path("ca.crt")
        source = {"brokers": secured.broker.elsewhere, "security": {"ca": ca, "verify_hostname": False}}
        lands(bench, bench.settings(filled, source=source))

    def test_shows_no_secret(
        self, bench: Bench, secured: Secured, filled: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Not in a task, its output or its errors, and not in what Spark says about them."""
        shares = [[Share(filled, 0, 99, 100)]]  # there are not so many
        effects = OnSpark(cast("Any", None), bench.spark)
        for way in (login(secured), certificate(secured), token(secured)):
            settings = SourceSettings.model_validate(way)
            stream = bench.settings(filled, source=way).streams[0]
            work = Work("pipeline", 1, 0, stream, Kafka(settings, (filled,)).reader("group", 1), {}, None)
            (receipt,) = effects.write(work, shares)
            assert isinstance(receipt.error, TryAgain), receipt
            with pytest.raises(Py4JJavaError) as failure:  # a bug in a task
                effects.write(replace(work, stream=cast("StreamSettings", None)), shares)
            shown = [repr(settings), repr(work), repr(receipt), str(receipt.error), str(failure.value)]
            shown += [str(bench.spark.sparkContext.getConf().getAll()), sentence(failure.value), *capfd.readouterr()]
            assert any("NoneType" in text for text in shown)
            secrets = [value.get_secret_value() for _, value in settings.security if isinstance(value, SecretStr)]
            for line in (line for secret in secrets for line in secret.splitlines()):
                assert "-----" in line or not any(line in text for text in shown), line[:10]

    def test_without_rights_to_the_group_gets_every_record(self, bench: Bench, secured: Secured, filled: str) -> None:
        """Its offsets are a hint for others."""
        settings = bench.settings(filled, source=login(secured))
        secured.broker.deny(USER, ResourceType.GROUP, settings.name, AclOperation.READ)
        lands(bench, settings)
        source = Kafka(settings.source, (filled,))
        with pytest.raises(SettingsRefused, match="`name`"):
            source.publish(source.ends(), settings.name)
        gone, began = ref(source), monotonic()
        del source
        gc.collect()
        assert gone() is None
        assert monotonic() - began < SOON_FREED_S


class TestErrorMessage:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
    def test_for_a_wrong_password_names_the_password(self, secured: Secured, mechanism: str) -> None:
        assert "`source.security.password`" in said(login(secured, password="wrong", mechanism=mechanism))

    def test_for_a_mechanism_that_is_not_offered_names_the_mechanism(self, secured: Secured) -> None:
        assert "`source.security.mechanism`" in said(login(secured, mechanism="SCRAM-SHA-256"))

    def test_for_a_wrong_client_secret_names_the_secret(self, secured: Secured) -> None:
        assert "`source.security.client_secret`" in said(token(secured, client_secret="wrong"))

    def test_for_a_token_server_that_is_away_names_its_url(self, secured: Secured) -> None:
        away = token(secured, token_url="http://127.0.0.1:1/token")
        assert "`source.security.token_url`" in said(away, TryAgain)

    def test_for_an_unknown_authority_names_the_ca(self, secured: Secured) -> None:
        for ca in ({"ca": secured.authority.path("outsider.crt")}, {"ca": None}):
            assert "`source.security.ca`" in said(login(secured, **ca))

    def test_for_a_certificate_of_another_host_names_the_host_name_check(self, secured: Secured) -> None:
        there = certificate(secured) | {"brokers": secured.broker.elsewhere}
        assert "`source.security.verify_hostname`" in said(there)

    def test_for_a_missing_certificate_names_the_certificate(self, secured: Secured) -> None:
        assert "without a certificate; fix `source.security.certificate`" in said(
            certificate(secured, certificate=None, key=None)
        )

    def test_for_a_certificate_that_brokers_do_not_trust_names_the_certificate(self, secured: Secured) -> None:
        outsider = {
            "certificate": secured.authority.path("outsider.crt"),
            "key": secured.authority.path("outsider.key"),
        }
        assert "`source.security.certificate`" in said(certificate(secured, **outsider))

    def test_for_a_key_of_another_certificate_names_the_key(self, secured: Secured) -> None:
        assert "`source.security.key` does not belong" in said(
            certificate(secured, key=secured.authority.path("stranger.key"))
        )

    @pytest.mark.parametrize("password", ["wrong", None])
    def test_for_a_key_that_stays_locked_names_its_password(self, secured: Secured, password: str | None) -> None:
        locked = {"key": secured.authority.lock("client", KEY_PASSWORD), "key_password": password}
        assert "`source.security.key_password`" in said(certificate(secured, **locked))

    def test_for_plaintext_to_a_tls_port_names_the_protocol(self, secured: Secured) -> None:
        for address in (secured.broker.tls, secured.broker.sasl):
            assert "speak TLS; fix `source.security.protocol`" in said({"brokers": address})

    def test_for_tls_to_a_plaintext_port_names_the_protocol(self, secured: Secured) -> None:
        for way in (login(secured), certificate(secured)):
            assert "speak no TLS; fix `source.security.protocol`" in said(way | {"brokers": secured.plain})

    def test_for_a_login_that_is_not_expected_names_the_protocol(self, secured: Secured) -> None:
        assert "`source.security.protocol`" in said(
            login(secured, verify_hostname=False) | {"brokers": secured.broker.elsewhere}
        )

    def test_for_a_missing_login_names_the_protocol(self, secured: Secured) -> None:
        """It may be a broker that is about to come, so it is waited for."""
        there = certificate(secured) | {"brokers": secured.broker.sasl}
        assert "`source.security.protocol`" in said(there, TryAgain)

    def test_for_brokers_out_of_reach_names_the_brokers(self, secured: Secured) -> None:
        assert "`source.brokers`" in said(login(secured) | {"brokers": "127.0.0.1:1"}, TryAgain)
        assert "`source.brokers`" in said(login(secured) | {"brokers": "nowhere.invalid:1"}, TryAgain)

    def test_for_a_topic_that_does_not_exist_names_the_topics(self, secured: Secured) -> None:
        assert "`streams.topics`" in said(login(secured), TryAgain, "nowhere")

    def test_for_a_topic_that_may_not_be_seen_names_the_topic(self, secured: Secured, filled: str) -> None:
        secured.broker.deny(USER, ResourceType.TOPIC, filled, AclOperation.DESCRIBE)
        assert f"topic {filled}" in said(login(secured), topic=filled)

    def test_for_a_topic_that_may_not_be_read_names_the_topic(
        self, bench: Bench, secured: Secured, filled: str
    ) -> None:
        """Only the client that reads finds out."""
        secured.broker.deny(USER, ResourceType.TOPIC, filled, AclOperation.READ)
        with pytest.raises(SettingsRefused, match=rf"do not let us read the topic {filled}.* `streams.topics`"):
            bench.ingest(bench.settings(filled, source=login(secured)))
