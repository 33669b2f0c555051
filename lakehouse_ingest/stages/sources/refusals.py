"""Why a Kafka client gets no answer, in one sentence that names the setting to mend: or that it may yet come."""

import re
import socket
import ssl
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain, fitted
from lakehouse_ingest.settings import SourceSettings

PROBE_S, PROBED = 5.0, 3  # seconds for each of so many brokers
# What librdkafka says of a connection, and of PEM that it can't use.
SAID: tuple[tuple[str, type[LakehouseError], str], ...] = (
    (
        r"Request not valid in current SASL state",
        SettingsRefused,
        "the brokers at {brokers} take no login there; {mend}",
    ),
    (
        r"supported mechanisms: (?P<found>[\w,-]+)",
        SettingsRefused,
        "the brokers at {brokers} do not take {sasl}, but {found}; mend `source.security.mechanism`",
    ),
    (
        # Not the address itself, which may hold any word: openid-connect, for one.
        r"(OAUTHBEARER|OIDC) token( from \"[^\"]*\")?[^\"]*(\b[Cc]onnect|resolve|timed? ?out|\((5\d\d|429|-1)\))",
        TryAgain,
        "`source.security.token_url` can't be reached: no token from {token_url}",
    ),
    (
        r"(OAUTHBEARER|OIDC) token",
        SettingsRefused,
        "no token for the client {client_id}; mend `source.security.client_secret` or `source.security.token_url`",
    ),
    (
        r"SASL authentication error.*",
        SettingsRefused,
        "the brokers at {brokers} refuse {who}: mend {login}",
    ),
    (
        r"SSL alert number (4[0-8]|116)",
        SettingsRefused,
        "the brokers at {brokers} refuse our TLS {certificate}; mend `source.security.certificate`",
    ),
    (
        r"ssl\.key\.pem failed.*mismatch",
        SettingsRefused,
        "`source.security.key` does not belong to the certificate in `source.security.certificate`",
    ),
    (
        r"ssl\.key\.pem failed",
        SettingsRefused,
        "`source.security.key` can't be read: mend it, or its `source.security.key_password`",
    ),
    (r"ssl\.ca\.pem", SettingsRefused, "`source.security.ca` can't be read: it should be certificates as PEM"),
    (
        r"ssl\.certificate\.pem",
        SettingsRefused,
        "`source.security.certificate` can't be read: it should be a certificate as PEM",
    ),
    (
        r"property \"(?P<found>[\w.]+)\"",
        SettingsRefused,
        "`source.options` has a value for {found} that librdkafka refuses: mend it",
    ),
)
NO_TOPIC = (
    "the brokers do not let us read the topic {found}; allow Read and Describe to {who}, or mend `streams.topics`"
)
NO_GROUP = "the brokers do not let us use the group {found}; allow Read to {who} on what begins with `name`"
NO_CLUSTER = "the brokers at {brokers} do not let us ask for their cluster; allow it to {who}"
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NO_TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NO_GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NO_CLUSTER,
}
JAVA_SAID: tuple[tuple[str, str], ...] = (
    (r"TopicAuthorizationException: .*\[(?P<found>.*)\]", NO_TOPIC),
    (r"GroupAuthorizationException: .*group: (?P<found>\S+)", NO_GROUP),
    (r"SaslAuthenticationException", "the brokers at {brokers} refuse {who}: mend {login}"),
    (
        r"ConfigException: Invalid value .* for configuration (?P<found>[\w.]+)",
        "Spark's Kafka client refuses the value of {found}: mend it in `source.options`",
    ),
    (
        r"(Private key could not be loaded|InvalidKeySpecException|No matching .* entries in PEM)",
        "Spark's Kafka client can't read `source.security.key` or `source.security.certificate`: mend them",
    ),
)
ALL_DOWN, TIMED_OUT = KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT  # noqa: SLF001 - so they are named
NO_REASON = (ALL_DOWN, TIMED_OUT)
# Upon a greeting in TLS; which of both depends on who is quicker.
HUNG_UP = re.compile(r"PLAINTEXT broker listener|SSL connection closed by peer")


def of_connections(errors: Iterable[KafkaError], source: SourceSettings) -> LakehouseError | None:
    """What a person must mend before any broker answers; None: it may come back, or nobody knows."""
    said = [error.str() for error in errors if error.code() not in NO_REASON]
    last = said[-1] if said else ""
    if "certificate verify failed" in last:
        return _untrusted(source)
    if HUNG_UP.search(last) and _answers_in_plaintext(source):
        return _refused("the brokers at {brokers} speak no TLS; {mend}", source)
    if not said and not source.security.over.endswith("ssl") and any(map(_speaks_tls, _addresses(source))):
        return _refused("the brokers at {brokers} speak TLS; {mend}", source)
    return of_text(last, source)


def of_answer(error: KafkaError, asked: str, source: SourceSettings) -> LakehouseError | None:
    """What a broker does not let us do."""
    sentence = FORBIDDEN.get(error.code())
    return _refused(sentence, source, found=asked) if sentence else None


def of_text(said: str, source: SourceSettings) -> LakehouseError | None:
    for pattern, kind, sentence in SAID:
        if found := re.search(pattern, said, re.IGNORECASE):
            return kind(_filled(sentence, source, **found.groupdict()))
    return None


def of_java(said: str, source: SourceSettings) -> LakehouseError | None:
    """What Spark's client finds, which comes after the other."""
    for pattern, sentence in JAVA_SAID:
        if found := re.search(pattern, said):
            return _refused(sentence, source, **found.groupdict())
    return None


def unanswered(errors: Iterable[KafkaError], error: KafkaError, source: SourceSettings) -> TryAgain:
    said = [each.str() for each in errors if each.code() not in NO_REASON]
    if not said and error.code() == TIMED_OUT:
        why = f"they hang up or are silent; if that stays, `source.security.protocol` ({source.security.over}) is wrong"
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
        mend=f"mend `source.security.protocol`, which is {security.over}, or the port in `source.brokers`",
        **{name: _short(value) for name, value in more.items()},
    )
    return fitted(filled)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- what librdkafka does not tell -------------------------------------------------------------------------


def _untrusted(source: SourceSettings) -> LakehouseError:
    """It says the same of a wrong signature and of a wrong name; a handshake of our own tells them apart."""
    ca = source.security.ca.get_secret_value() if source.security.ca else None
    context = ssl.create_default_context(cadata=ca)
    context.check_hostname = source.security.verify_hostname
    why = "it is not signed by them"
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
                    "the certificate of the broker {found} does not name that host: reach it by its name, or set"
                    " `source.security.verify_hostname` to false",
                    source,
                    found=_short(f"{host}:{port}"),
                )
            why = failure.verify_message
        except OSError:
            continue
    return _refused(
        "the certificate of the brokers at {brokers} can't be verified ({found}); mend `source.security.ca`",
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
    """A broker that is about to stop hangs up as well."""
    try:
        AdminClient({"bootstrap.servers": source.brokers, "log_level": 0}).list_topics(timeout=PROBE_S)
    except KafkaException:
        # A listener that wants a login without TLS answers as well, but not to this; then the wait goes on.
        return False
    return True


def _addresses(source: SourceSettings) -> list[tuple[str, int]]:
    found = [re.fullmatch(r"(?:\w+://)?\[?(.+?)\]?(?::(\d+))?", each.strip()) for each in source.brokers.split(",")]
    return [(each[1], int(each[2] or 9092)) for each in found if each][:PROBED]
