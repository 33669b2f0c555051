"""Checks `source.options`: which of them the Kafka client knows, in any spelling, and which have a setting here."""

from collections.abc import Mapping
from difflib import get_close_matches

from lakehouse_ingest.errors import SettingsRefused

NOTHING, BYTES = "nothing: offsets live in the tables", "nothing: records are read as bytes"
SECURITY = "source.security."


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options that mean the same as a setting of ours, as Java, librdkafka and kafka-python spell them. They are refused,
# because only one of the two could count.
OURS = {
    "auto.offset.reset": "source.start",
    "auto.commit.enable": NOTHING,
    "auto.commit.interval.ms": NOTHING,
    "enable.auto.commit": NOTHING,
    "enable.auto.offset.store": NOTHING,
    "key.deserializer": BYTES,
    "value.deserializer": BYTES,
    "interceptor.classes": BYTES,
    "isolation.level": "source.isolation",
    "bootstrap.servers": "source.brokers",
    "metadata.broker.list": "source.brokers",
    "group.id": "name",
    "security.protocol": f"{SECURITY}protocol",
    **dict.fromkeys(("sasl.mechanism", "sasl.mechanisms"), f"{SECURITY}mechanism"),
    **dict.fromkeys(("sasl.username", "sasl.plain.username"), f"{SECURITY}username"),
    **dict.fromkeys(("sasl.password", "sasl.plain.password"), f"{SECURITY}password"),
    "sasl.jaas.config": f"{SECURITY}username and {SECURITY}password",
    **dict.fromkeys(
        _names("""ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
        ssl.ca.location ssl.ca.pem ssl.ca.certificate.stores ssl.cafile"""),
        f"{SECURITY}ca",
    ),
    **dict.fromkeys(
        _names("""ssl.keystore.certificate.chain ssl.keystore.location ssl.keystore.password ssl.keystore.type
        ssl.certificate.location ssl.certificate.pem ssl.certfile"""),
        f"{SECURITY}certificate",
    ),
    **dict.fromkeys(("ssl.keystore.key", "ssl.key.location", "ssl.key.pem", "ssl.keyfile"), f"{SECURITY}key"),
    **dict.fromkeys(("ssl.key.password", "ssl.password"), f"{SECURITY}key_password"),
    **dict.fromkeys(
        ("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification", "ssl.check.hostname"),
        f"{SECURITY}verify_hostname",
    ),
    **dict.fromkeys(
        _names("""sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.method sasl.oauthbearer.config
        sasl.login.callback.handler.class sasl.oauth.token.provider"""),
        f"{SECURITY}token_url",
    ),
    **dict.fromkeys(
        ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"), f"{SECURITY}client_id"
    ),
    **dict.fromkeys(
        ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
        f"{SECURITY}client_secret",
    ),
    "sasl.oauthbearer.scope": f"{SECURITY}scope",
    "sasl.kerberos.service.name": "nothing: Kerberos is not among the mechanisms",
}
# The other options that Kafka's clients know. Those of Java are refused by name, because many users have some.
BOTH = _names(
    """allow.auto.create.topics check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms
    enable.metrics.push fetch.max.bytes fetch.min.bytes group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms max.partition.fetch.bytes max.poll.interval.ms metadata.max.age.ms
    metadata.recovery.strategy reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    session.timeout.ms socket.connection.setup.timeout.ms ssl.cipher.suites"""
)
ONLY_JAVA = _names(
    """auto.include.jmx.reporter default.api.timeout.ms exclude.internal.topics fetch.max.wait.ms max.poll.records
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    receive.buffer.bytes request.timeout.ms sasl.client.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms ssl.enabled.protocols
    ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm"""
)
ONLY_LIBRDKAFKA = _names(
    """api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family
    broker.address.ttl broker.version.fallback fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms https.ca.location https.ca.pem log.connection.close max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes
    metadata.recovery.rebootstrap.trigger.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
    reconnect.backoff.jitter.ms sasl.oauthbearer.extensions socket.blocking.max.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.crl.location ssl.curves.list ssl.engine.id ssl.engine.location ssl.providers ssl.sigalgs.list
    statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse"""
)
KNOWN = BOTH | ONLY_LIBRDKAFKA


def known_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options, in librdkafka's spelling."""
    return {_known(key): value for key, value in options.items()}


def _known(key: str) -> str:
    name = key.replace("_", ".")
    if ours := OURS.get(name):
        use = ours if ours.startswith("nothing") else " and ".join(f"`{each}`" for each in ours.split(" and "))
        raise SettingsRefused(f"the setting `source.options` can't hold {key}; use {use}")
    if name in ONLY_JAVA:
        raise SettingsRefused(
            f"only Kafka's Java client knows {key} in `source.options`, and librdkafka reads the records; leave it out"
        )
    if name not in KNOWN:
        near = get_close_matches(name, KNOWN | OURS.keys(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsRefused(f"no Kafka consumer knows {key} in `source.options`{hint}")
    return name
