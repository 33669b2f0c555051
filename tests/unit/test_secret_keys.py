"""Secrets are found wherever in the settings they are."""

import re

import pytest

from catalog import specs
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.settings.secret_words import HIDDEN_KEYS, SECRET_KEYS, secrets_of
from telemetry import masking

PLANTED = {
    "name": "plant",
    "catalog": {
        "token": "planted-1",
        "credential": "planted-id:planted-2",
        "headers": {"Authorization": "Bearer planted-3"},
        "properties": {"adls.sas-token.account": "planted-4", "token-refresh-enabled": "true", "prefix": "shown-1"},
    },
    "s3": {"access_key": "planted-5", "secret_key": "planted-6"},
    "source": {"options": {"ssl.key.password": "planted-7", "client.id": "shown-2", "sasl.password": "abc"}},
    "streams": [
        {"topics": ["t"], "tables": [{"hints": {"password": "string"}, "properties": {"k.secret": "planted-8"}}]}
    ],
    "spark": {"options": {"spark.hadoop.fs.s3a.access.key": "planted-9"}},
    "telemetry": {"headers": {"x-key": "planted-10"}},
}


KEYS = """
password passwd passphrase ssl.key.password client-secret token adls.sas-token.account credential authorization
Authorisation Set-Cookie sasl.jaas.config sasl_jaas api-key access_key s3.access-key-id private-key account-key
adls.account-key sas-key sse.key s3.sse-key encryption-key ssl.key.pem rest.proxy-uri header.X-Api-Key
"""


class TestSecrets:
    def test_are_found_wherever_they_are_in_the_settings(self) -> None:
        found = secrets_of(Settings.model_validate(PLANTED))
        assert {value for value in found if "planted" not in value} == set(), "what is hidden everywhere must be secret"
        wanted = {f"planted-{number}" for number in range(1, 11)} | {"planted-id:planted-2", "Bearer planted-3"}
        assert wanted <= found

    @pytest.mark.parametrize(
        "key",
        [
            "spark.sql.catalog.lake.token",
            "spark.sql.catalog.lake.credential",
            "spark.sql.catalog.lake.header.X-Api-Key",
            "spark.sql.catalog.lake.s3.secret-access-key",
            "spark.sql.catalog.lake.s3.access-key-id",
            "kafka.sasl.jaas.config",
            "kafka.ssl.keystore.key",
            "kafka.ssl.truststore.certificates",
            "kafka.ssl.key.password",
        ],
    )
    def test_are_hidden_by_spark_under_their_key(self, key: str) -> None:
        assert re.search(HIDDEN_KEYS, key)

    @pytest.mark.parametrize("theirs", [f"(?i){masking._WORDS}", specs.HIDDEN_KEYS])
    @pytest.mark.parametrize("key", KEYS.split())
    def test_have_every_word_of_the_lists_in_the_packages(self, theirs: str, key: str) -> None:
        """They keep a list for whoever uses them alone. Ours takes its place, so it may lack nothing."""
        assert re.search(SECRET_KEYS, key) or not re.search(theirs, key)
