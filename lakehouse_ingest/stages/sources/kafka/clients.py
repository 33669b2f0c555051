"""Options of the Kafka client, librdkafka: it reads the records and asks about topics."""

from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.settings.field_types import given
from lakehouse_ingest.settings.secret_words import revealed
from lakehouse_ingest.stages.sources.kafka.client_options import known_options


def for_librdkafka(source: SourceSettings) -> dict[str, str]:
    security = source.security
    mine = {
        "bootstrap.servers": source.brokers,
        "security.protocol": security.over,
        "sasl.mechanism": security.sasl,
        "sasl.username": security.username,
        "sasl.password": revealed(security.password),
        "ssl.ca.pem": revealed(security.ca),
        "ssl.certificate.pem": revealed(security.certificate),
        "ssl.key.pem": revealed(security.key),
        "ssl.key.password": revealed(security.key_password),
        "ssl.endpoint.identification.algorithm": "https" if security.verify_hostname else "none",
    }
    if security.sasl == "OAUTHBEARER":
        mine |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": security.token_url,
            "sasl.oauthbearer.client.id": security.client_id,
            "sasl.oauthbearer.client.secret": revealed(security.client_secret),
            "sasl.oauthbearer.scope": security.scope,
        }
    return {**given(mine), **known_options(source.options)}
