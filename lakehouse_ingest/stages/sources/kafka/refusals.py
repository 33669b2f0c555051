"""Explains why a Kafka client gets no answer: which setting a person has to fix, or that an answer may still come."""

import re
import socket
import ssl
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain, fitted
from lakehouse_ingest.settings import SourceSettings

PROBE_S, PROBED = 5.0, 3  # seconds for each broker, and how many brokers we try
# What librdkafka says about connections, and about PEM that it can't use.
SAID: tuple[tuple[str, type[LakehouseError], str], ...] = (
    (
        r"Request not valid in current SASL state",
        SettingsRefused,
        "the brokers at {brokers} expect no login on this port; {fix}",
    ),
    (
        r"supported mechanisms: (?P<found>[\w,-]+)",
        SettingsRefused,
        "the brokers at {brokers} do not accept {sasl}, only {found}; fix `source.security.mechanism`",
    ),
    (
        # Don't match the address itself: it may hold any word, such as openid-connect.
        r"(OAUTHBEARER|OIDC) token( from \"[^\"]*\")?[^\"]*(\b[Cc]onnect|resolve|timed? ?out|\((5\d\d|429|-1)\))",
        TryAgain,
        "there is no token, because {token_url} can't be reached; check `source.security.token_url` and that server",
    ),
    (
        r"(OAUTHBEARER|OIDC) token",
        SettingsRefused,
        "no token for the client {client_id}; fix `source.security.client_secret` or `source.security.token_url`",
    ),
    (
        r"SASL authentication error.*",
        SettingsRefused,
        "the brokers at {brokers} refuse {who}; fix {login}",
    ),
    (
        r"SSL alert number (4[0-8]|116)",
        SettingsRefused,
        "the brokers at {brokers} refuse our TLS {certificate}; fix `source.security.certificate`",
    ),
    (
        r"ssl\.key\.pem failed.*mismatch",
        SettingsRefused,
        "`source.security.key` does not belong to the certificate in `source.security.certificate`; set its own key",
    ),
    (
        r"ssl\.key\.pem failed",
        SettingsRefused,
        "`source.security.key` can't be read; fix it, or its `source.security.key_password`",
    ),
    (r"ssl\.ca\.pem", SettingsRefused, "`source.security.ca` can't be read; it should be certificates as PEM"),
    (
        r"ssl\.certificate\.pem",
        SettingsRefused,
        "`source.security.certificate` can't be read; it should be a certificate as PEM",
    ),
    (
        r"property \"(?P<found>[\w.]+)\"",
        SettingsRefused,
        "`source.options` has a value for {found} that librdkafka refuses; fix that value",
    ),
)
NO_TOPIC = "the brokers do not let us read the topic {found}; grant {who} Read and Describe, or fix `streams.topics`"
NO_GROUP = "the brokers do not let us use the group {found}; grant {who} Read on groups that begin with `name`"
NO_CLUSTER = "the brokers at {brokers} do not let us describe their cluster; grant {who} Describe on the cluster"
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NO_TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NO_GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NO_CLUSTER,
}
ALL_DOWN, TIMED_OUT = KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT  # noqa: SLF001 - so they are named
NO_REASON = (ALL_DOWN, TIMED_OUT)
# What a listener without TLS answers to a TLS handshake. Which of both we see depends on timing.
HUNG_UP = re.compile(r"PLAINTEXT broker listener|SSL connection closed by peer")


def of_connections(errors: Iterable[KafkaError], source: SourceSettings) -> LakehouseError | None:
    """What a person must fix before any broker answers. None: it may be an outage, or the cause is unknown."""
    said = [error.str() for error in errors if error.code() not in NO_REASON]
    last = said[-1] if said else ""
    if "certificate verify failed" in last:
        return _untrusted(source)
    if HUNG_UP.search(last) and _answers_in_plaintext(source):
        return _refused("the brokers at {brokers} speak no TLS; {fix}", source)
    if not said and not source.security.over.endswith("ssl") and any(map(_speaks_tls, _addresses(source))):
        return _refused("the brokers at {brokers} speak TLS; {fix}", source)
    return of_text(last, source)


def of_answer(error: KafkaError, asked: str, source: SourceSettings) -> LakehouseError | None:
    """The refusal behind a broker's error code; None if it is not about permissions."""
    sentence = FORBIDDEN.get(error.code())
    return _refused(sentence, source, found=asked) if sentence else None


def of_text(said: str, source: SourceSettings) -> LakehouseError | None:
    for pattern, kind, sentence in SAID:
        if found := re.search(pattern, said, re.IGNORECASE):
            return kind(_filled(sentence, source, **found.groupdict()))
    return None


def unanswered(errors: Iterable[KafkaError], error: KafkaError, source: SourceSettings) -> TryAgain:
    said = [each.str() for each in errors if each.code() not in NO_REASON]
    if not said and error.code() == TIMED_OUT:
        why = f"they hang up or are silent; if that goes on, fix `source.security.protocol` ({source.security.over})"
    else:
        why = re.sub(r" \(after \d+ms.*|^\S+/(bootstrap|\d+): ", "", said[-1] if said else error.str())
    return TryAgain(fitted(f"no answer from `source.brokers` at {source.brokers}: {why}"))


def _refused(sentence: str, source: SourceSettings, **more: str) -> SettingsRefused:
    return SettingsRefused(_filled(sentence, source, **more))


def _filled(sentence: str, source: SourceSettings, **more: str) -> str:
    security = source.security
    if security.sasl == "OAUTHBEARER":
        who, login = f"the token of {security.client_id}", "`source.security.client_id` or `source.security.scope`"
    elif security.sasl:
        who, login = f"the user {security.username}", "`source.security.username` or `source.security.password`"
    else:
        who, login = "this client", "`source.security`"
    filled = sentence.format(
        brokers=_short(source.brokers),
        over=security.over,
        sasl=security.sasl,
        who=_short(who),
        login=login,
        certificate="certificate" if security.certificate else "without a certificate",
        token_url=security.token_url,
        client_id=security.client_id,
        fix=f"fix `source.security.protocol`, which is {security.over}, or the port in `source.brokers`",
        **{name: _short(value) for name, value in more.items()},
    )
    return fitted(filled)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- what librdkafka does not say --------------------------------------------------------------------------


def _untrusted(source: SourceSettings) -> LakehouseError:
    """What is wrong with a certificate. librdkafka says the same about a wrong signature and a wrong host name.

    A handshake of our own finds out which of them it is.
    """
    ca = source.security.ca.get_secret_value() if source.security.ca else None
    context = ssl.create_default_context(cadata=ca)
    context.check_hostname = source.security.verify_hostname
    why = "no authority that we trust has signed it"
    for host, port in _addresses(source):
        try:
            with (
                socket.create_connection((host, port), PROBE_S) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                pass
        except ssl.SSLCertVerificationError as failure:
            if "mismatch" in failure.verify_message:
                return _refused(
                    "the certificate of the broker {found} does not name that host; use a name of the certificate, or"
                    " set `source.security.verify_hostname` to false",
                    source,
                    found=_short(f"{host}:{port}"),
                )
            why = failure.verify_message
        except OSError:
            continue
    return _refused(
        "the certificate of the brokers at {brokers} can't be verified ({found}); fix `source.security.ca`",
        source,
        found=why,
    )


def _speaks_tls(address: tuple[str, int]) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, PROBE_S) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _answers_in_plaintext(source: SourceSettings) -> bool:
    """Whether it is certain that the brokers speak no TLS. A broker that is about to stop hangs up as well."""
    try:
        AdminClient({"bootstrap.servers": source.brokers, "log_level": 0}).list_topics(timeout=PROBE_S)
    except KafkaException:
        # A listener that wants a login without TLS does not answer this request. Then we keep waiting.
        return False
    return True


def _addresses(source: SourceSettings) -> list[tuple[str, int]]:
    found = [re.fullmatch(r"(?:\w+://)?\[?(.+?)\]?(?::(\d+))?", each.strip()) for each in source.brokers.split(",")]
    return [(each[1], int(each[2] or 9092)) for each in found if each][:PROBED]
