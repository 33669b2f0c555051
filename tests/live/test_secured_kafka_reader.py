"""A task can log in wherever a run can, and each refusal says what to fix."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.sources.kafka import consumers
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader
from tests.live.test_secured_kafka import certificate, login, token
from tests.services.kafka import create_topic, produce
from tests.services.secured_kafka import KEY_PASSWORD, PASSWORD, USER, Secured, secured_kafka

pytestmark = pytest.mark.live

RECORDS = 300


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), jars_folder) as found:
        yield found
    consumers.let_go_all()


@pytest.fixture
def filled(secured: Secured, topic: str) -> str:
    create_topic(secured.plain, topic)
    small = {"batch.num.messages": 20, "linger.ms": 0}
    produce(secured.plain, topic, ((None, os.urandom(10_000)) for _ in range(RECORDS)), small)
    return topic


def reader(way: dict[str, Any], **more: Any) -> KafkaReader:
    """As a task gets it: after a journey as bytes."""
    made: KafkaReader = pickle.loads(pickle.dumps(KafkaReader(SourceSettings.model_validate(way), "tests", 1, **more)))
    return made


def reads(way: dict[str, Any], topic: str) -> bool:
    return sum(map(len, reader(way).read(Share(topic, 0, 0, RECORDS)))) == RECORDS


class TestWayIn:
    def test_by_password(self, secured: Secured, filled: str) -> None:
        assert reads(login(secured), filled)

    def test_by_scram(self, secured: Secured, filled: str) -> None:
        assert reads(login(secured, protocol="SASL_SSL", mechanism="SCRAM-SHA-512"), filled)

    def test_by_token(self, secured: Secured, filled: str) -> None:
        assert reads(token(secured), filled)

    def test_by_certificate(self, secured: Secured, filled: str) -> None:
        assert reads(certificate(secured), filled)

    def test_by_certificate_with_a_locked_key(self, secured: Secured, filled: str) -> None:
        locked = {"key": secured.authority.lock("client", KEY_PASSWORD), "key_password": KEY_PASSWORD}
        assert reads(certificate(secured, **locked), filled)

    def test_by_certificate_as_text(self, secured: Secured, filled: str) -> None:
        files = {"ca": "ca.crt", "certificate": "client.crt", "key": "client.key"}
        assert reads(
            certificate(secured, **{name: secured.authority.text(file) for name, file in files.items()}), filled
        )

    def test_by_a_name_that_the_certificate_lacks(self, secured: Secured, filled: str) -> None:
        ca = secured.authority.path("ca.crt")
        assert reads({"brokers": secured.broker.elsewhere, "security": {"ca": ca, "verify_hostname": False}}, filled)

    def test_is_open_without_leave_to_use_the_group(self, secured: Secured, filled: str) -> None:
        """No group is used."""
        secured.broker.deny(USER, ResourceType.GROUP, "tests", AclOperation.READ)
        secured.broker.deny(USER, ResourceType.GROUP, "tests", AclOperation.DESCRIBE)
        assert reads(login(secured), filled)


class TestKeptOut:
    def test_by_a_wrong_password(self, secured: Secured, filled: str) -> None:
        with pytest.raises(SettingsRefused, match=r"`source.security.password`") as refusal:
            list(reader(login(secured, password="wrong")).read(Share(filled, 0, 0, 1)))
        assert PASSWORD not in str(refusal.value)

    def test_by_a_wrong_secret_of_the_client(self, secured: Secured, filled: str) -> None:
        with pytest.raises(SettingsRefused, match=r"`source.security.client_secret`"):
            list(reader(token(secured, client_secret="wrong")).read(Share(filled, 0, 0, 1)))

    def test_by_an_authority_that_is_not_ours(self, secured: Secured, filled: str) -> None:
        with pytest.raises(SettingsRefused, match=r"`source.security.ca`"):
            list(reader(login(secured, ca=secured.authority.path("outsider.crt"))).read(Share(filled, 0, 0, 1)))

    def test_by_a_server_of_tokens_that_is_away(self, secured: Secured, filled: str) -> None:
        away = token(secured, token_url="http://127.0.0.1:1/token")
        with pytest.raises(TryAgain, match=r"`source.security.token_url`"):
            list(reader(away, silence_s=5.0).read(Share(filled, 0, 0, 1)))

    def test_of_a_topic(self, secured: Secured, filled: str) -> None:
        secured.broker.deny(USER, ResourceType.TOPIC, filled, AclOperation.READ)
        with pytest.raises(SettingsRefused, match=rf"do not let us read the topic {filled}; .*`streams.topics`"):
            list(reader(login(secured)).read(Share(filled, 0, 0, 1)))

    def test_of_a_topic_while_it_is_read(self, secured: Secured, filled: str) -> None:
        few = {"queued.min.messages": "1", "max.partition.fetch.bytes": "1000", "fetch.max.bytes": "1000"}
        way = login(secured) | {"options": few}
        reading = reader(way, most_records=5).read(Share(filled, 0, 0, RECORDS))
        next(reading)
        secured.broker.deny(USER, ResourceType.TOPIC, filled, AclOperation.READ)
        with pytest.raises(SettingsRefused, match=f"do not let us read the topic {filled}"):
            list(reading)
