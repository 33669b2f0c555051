"""Options of the two Kafka clients. Spark's Java client reads the records, librdkafka asks about topics."""

import re

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.settings.field_types import given
from lakehouse_ingest.settings.models import SecuritySettings
from lakehouse_ingest.settings.secret_words import revealed
from lakehouse_ingest.stages.sources.client_options import sorted_out

# Java's StreamTokenizer reads a JAAS configuration. There a string ends at a quote, or at the end of the line.
QUOTED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
MODULES = "org.apache.kafka.common.security"


def for_java(source: SourceSettings, key: str | None = None) -> dict[str, str]:
    """Options for the Java client. `key` is the private key of the client, without a password."""
    security = source.security
    mine = {
        "bootstrap.servers": source.brokers,
        "isolation.level": source.isolation,
        "security.protocol": security.over.upper(),
        "sasl.mechanism": security.sasl,
        "sasl.jaas.config": _jaas(security),
        "sasl.oauthbearer.token.endpoint.url": security.token_url,
        "ssl.truststore.certificates": revealed(security.ca),
        "ssl.keystore.certificate.chain": revealed(security.certificate),
        "ssl.keystore.key": key,
        "ssl.truststore.type": "PEM" if security.ca else None,
        "ssl.keystore.type": "PEM" if security.certificate else None,
        "ssl.endpoint.identification.algorithm": "https" if security.verify_hostname else "",
    }
    if security.sasl == "OAUTHBEARER":
        mine["sasl.login.callback.handler.class"] = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
    options, _ = sorted_out(source.options)
    return {**given(mine), **options}


def for_librdkafka(source: SourceSettings) -> dict[str, str]:
    security = source.security
    _check_key(security)
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
    _, options = sorted_out(source.options)
    return {**given(mine), **options}


def _jaas(security: SecuritySettings) -> str | None:
    match security.sasl:
        case None:
            return None
        case "OAUTHBEARER":
            module = "oauthbearer.OAuthBearerLoginModule"
            words = {
                "clientId": security.client_id,
                "clientSecret": revealed(security.client_secret),
                "scope": security.scope,
            }
        case mechanism:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            words = {"username": security.username, "password": revealed(security.password)}
    said = [f'{key}="{value.translate(QUOTED)}"' for key, value in given(words).items()]
    return f"{MODULES}.{module} required {' '.join(said)};"


def _check_key(security: SecuritySettings) -> None:
    if security.key and re.search(r"BEGIN (RSA|EC|DSA) PRIVATE KEY", security.key.get_secret_value()):
        raise SettingsRefused(
            "`source.security.key` should be PKCS 8, because Java can't read older formats; convert it with"
            " `openssl pkcs8 -topk8 -nodes`"
        )
