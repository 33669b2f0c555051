"""A broker that asks who comes: TLS with client certificates, and SASL by password, by SCRAM or by token.

Its certificates are made by openssl, anew for each run. Tokens come from a small server beside it, signed, and the
broker checks them with Kafka's own validator.
"""

import json
import re
import subprocess
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.parse import unquote

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from tests.services.pipelines import until

PASSWORD = r"""it's "quoted"; \n back\\slash $1 = ł"""
KEY_PASSWORD = "of the key"
USER, CLIENT = "alice", "ingest"
LISTENERS = """
listeners=PLAINTEXT://{host}:{plain},SSL://{host}:{tls},SASL_SSL://{host}:{sasl},ELSEWHERE://{host}:{elsewhere},{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SSL://{host}:{tls},SASL_SSL://{host}:{sasl},ELSEWHERE://{host}:{elsewhere}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,ELSEWHERE:SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.ssl.ssl.client.auth=required
listener.name.elsewhere.ssl.keystore.location={folder}/elsewhere.pem
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config=\
 org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}={password};
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
 org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\
 org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=\
 org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={issuer}/keys
listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.audience=kafka
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
"""


class SecuredBroker(EmbeddedBroker):
    """`start` returns the servers of its plain listener, where tests make topics and fill them."""

    def __init__(self, folder: Path, authority: "Authority", issuer: str, jars: Path | None) -> None:
        super().__init__(folder, 0, jars=jars)
        self.authority, self._issuer = authority, issuer
        self.java_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer}/keys",)
        self.tls, self.sasl, self.elsewhere = (f"{LOOPBACK}:{any_free_port()}" for _ in range(3))

    def _settings(self, port: int, data: Path) -> str:
        plain = super()._settings(port, data)
        quoted = PASSWORD.replace("\\", r"\\").replace('"', r"\"")
        return plain + LISTENERS.format(
            host=LOOPBACK,
            plain=port,
            **{name: getattr(self, name).rpartition(":")[2] for name in ("tls", "sasl", "elsewhere")},
            controller=re.findall(r"CONTROLLER://\S+", plain)[0],
            folder=self.authority.folder,
            user=USER,
            password=f'"{quoted}"'.encode("unicode_escape").decode(),  # as properties files have it
            issuer=self._issuer,
        )

    def let_in(self, user: str, password: str) -> None:
        """By SCRAM."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient({"bootstrap.servers": self.uri or ""})
        change = UserScramCredentialUpsertion(user, how, password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result()
        _shown(lambda: cast("dict[str, Future[Any]]", admin.describe_user_scram_credentials([user]))[user])

    def deny(self, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        rule = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.DENY
        )
        admin = AdminClient({"bootstrap.servers": self.uri or ""})
        for future in admin.create_acls([rule]).values():
            future.result()
        same = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.DENY
        )
        _shown(lambda: admin.describe_acls(same))


def _shown(ask: Callable[[], Future[Any]]) -> None:
    """A change is in force once the broker itself shows it; until then only the controller has it."""

    def is_there() -> bool:
        with suppress(KafkaException):  # there is none of that name yet
            return bool(ask().result())
        return False

    assert until(is_there, 30)


class Authority:
    """Makes keys, and signs them; a folder holds them all as PEM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make("ca", ["-subj", "/CN=the tests' own", "-addext", "basicConstraints=critical,CA:TRUE"])

    def sign(self, name: str, alternative: str | None = None) -> None:
        """The files `name.crt`, `name.key`, and `name.pem` with both."""
        names = ["-addext", f"subjectAltName={alternative}"] if alternative else []
        ca = ["-CA", str(self.folder / "ca.crt"), "-CAkey", str(self.folder / "ca.key")]
        self.make(name, ["-subj", f"/CN={name}", *names, *ca, "-addext", "basicConstraints=critical,CA:FALSE"])

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def lock(self, name: str, password: str) -> str:
        """The key again, encrypted; its path."""
        locked = self.path(f"{name}.locked")
        openssl("pkcs8", "-topk8", "-in", self.path(f"{name}.key"), "-out", locked, "-passout", f"pass:{password}")
        return locked

    def make(self, name: str, more: Sequence[str]) -> None:
        key, certificate = self.path(f"{name}.key"), self.path(f"{name}.crt")
        fresh = ["-newkey", "rsa:2048", "-nodes", "-keyout", key, "-days", "2"]
        openssl("req", "-x509", *fresh, *more, "-out", certificate)
        (self.folder / f"{name}.pem").write_text(self.text(f"{name}.key") + self.text(f"{name}.crt"))


def openssl(*words: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True, timeout=60).stdout


@dataclass
class Issuer:
    """Gives tokens to who knows the secret, and shows the key that they are signed with."""

    key: str
    secret: str = "of the client"
    url: str = ""

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT, "aud": "kafka", "iss": "tests", "iat": now, "exp": now + 600, "scope": "read"}
        signed = f"{_encoded({'alg': 'RS256', 'kid': '1'})}.{_encoded(claims)}"
        signature = openssl("dgst", "-sha256", "-sign", self.key, given=signed.encode())
        return f"{signed}.{_base64(signature)}"

    def keys(self) -> dict[str, Any]:
        modulus = openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().partition("=")[2]
        public = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": _base64(bytes.fromhex(modulus))}
        return {"keys": [{**public, "e": _base64((65537).to_bytes(3, "big"))}]}

    def knows(self, authorization: str) -> bool:
        given = b64decode(authorization.removeprefix("Basic ")).decode()
        return [unquote(part) for part in given.split(":", 1)] == [CLIENT, self.secret]


def _encoded(claims: dict[str, Any]) -> str:
    return _base64(json.dumps(claims).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def issuing(key: str) -> Iterator[Issuer]:
    issuer = Issuer(key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, issuer.keys())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if issuer.knows(self.headers.get("Authorization", "")):
                self._answer(200, {"access_token": issuer.token(), "token_type": "Bearer", "expires_in": 600})
            else:
                self._answer(401, {"error": "invalid_client"})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    issuer.url = f"http://{LOOPBACK}:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Secured:
    """All that a test needs to come in, or to be kept out."""

    broker: SecuredBroker
    authority: Authority
    issuer: Issuer
    plain: str


@contextmanager
def secured_kafka(folder: Path, jars: Path | None) -> Iterator[Secured]:
    certificates = folder / "certificates"
    certificates.mkdir()
    authority = Authority(certificates)
    authority.sign("broker", f"IP:{LOOPBACK}")
    authority.sign("elsewhere", "DNS:elsewhere.example")
    authority.sign("client")
    authority.sign("stranger")
    authority.make("outsider", ["-subj", "/CN=outsider"])
    (certificates / "ca.pem").write_text(authority.text("ca.crt"))
    with issuing(authority.path("client.key")) as issuer:
        broker = SecuredBroker(folder / "broker", authority, issuer.url, jars)
        try:
            plain = broker.start()
            broker.let_in(USER, PASSWORD)
            yield Secured(broker, authority, issuer, plain)
        finally:
            broker.stop()
