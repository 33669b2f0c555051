"""A gate in front of a REST catalog that lets in only who may: it checks tokens, headers and signatures for real.

with Gateway(rest_uri) as gateway:
    gateway.tokens_live = 3.0         # seconds
    gateway.tokens_fail_for(10.0)     # its token endpoint answers 503 for so long
    connect(Connection(gateway.uri, properties={"credential": gateway.credential}))
    gateway.seen["token"]             # how often a token was asked for
"""

import base64
import binascii
import hashlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.services.fronts import Answer, Front, Request, passed_on

TOKENS = "/v1/oauth/tokens"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
AUTHENTICATION_TIMEOUT = 419
SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=(\S+), ?Sig\w+=(\w+)"
)


class Denial(Exception):
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Gateway(Front):
    """What may be changed while it serves: all that is public."""

    upstream: str
    client: tuple[str, str] = field(default_factory=lambda: ("ingest", secrets.token_hex(12)))
    scope: str = "catalog"
    headers: Mapping[str, str] = field(default_factory=dict)  # that each request must have
    tokens_live: float = 3_600.0
    grace: float = 0.0  # for so long each is taken beyond the end that its owner knows of
    expired: int = AUTHENTICATION_TIMEOUT
    signer: tuple[str, str, str, str] | None = None  # key, secret, region, service: signatures instead of tokens
    vended: Mapping[str, str] = field(default_factory=dict)  # for tables' files, to those who ask for them
    slow: float = 0.0  # seconds before each answer
    seen: Counter[str] = field(default_factory=Counter)
    _tokens: dict[str, float] = field(default_factory=dict)  # and until when each is good
    _faults: dict[str, float] = field(default_factory=dict)

    @property
    def credential(self) -> str:
        return ":".join(self.client)

    def token(self, seconds: float | None = None) -> str:
        """A new one that is good for so long."""
        made = secrets.token_hex(16)
        self._tokens[made] = time.monotonic() + (self.tokens_live if seconds is None else seconds) + self.grace
        return made

    def revoke(self) -> None:
        """Every token that was given out is expired."""
        self._tokens = dict.fromkeys(self._tokens, 0.0)

    def tokens_fail_for(self, seconds: float) -> None:
        self._faults["token"] = time.monotonic() + seconds

    def away_for(self, seconds: float) -> None:
        self._faults["catalog"] = time.monotonic() + seconds

    def answer(self, request: Request) -> Answer:
        headers = {name.lower(): value for name, value in request.headers}
        token = urlsplit(request.path).path == TOKENS
        try:
            self.answered("token" if token else "catalog")
            if token:
                granted = self.grant(parse_qs(request.body.decode()), headers.get("authorization", ""))
                return Answer(HTTPStatus.OK, json.dumps(granted).encode())
            self.check(request.method, request.path, headers, request.body)
        except Denial as denial:
            said: Any = {"message": str(denial), "type": denial.kind, "code": denial.status}
            wrapped = {"error": denial.kind, "error_description": str(denial)} if token else {"error": said}
            return Answer(denial.status, json.dumps(wrapped).encode())
        # What may have to be changed must not be compressed.
        answer = passed_on(self.upstream, request.without("authorization", "accept-encoding"))
        return replace(answer, body=self.dressed(answer.body, headers)) if answer.status == HTTPStatus.OK else answer

    # -- what it checks -----------------------------------------------------------------------------------

    def answered(self, what: str) -> None:
        """Counts, waits and fails as it was told to."""
        self.seen[what] += 1
        time.sleep(self.slow)
        if time.monotonic() < self._faults.get(what, 0.0):
            self.seen[f"{what} failed"] += 1
            raise Denial(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException", "not now")

    def grant(self, form: Mapping[str, list[str]], authorization: str) -> dict[str, object]:
        """The answer of the token endpoint."""
        given = {key: values[0] for key, values in form.items()}
        known = (given.get("client_id"), given.get("client_secret")) == self.client or _basic(
            authorization
        ) == self.client
        exchanged = given.get("grant_type") == EXCHANGE and given.get("subject_token") in self._tokens
        if not known and not exchanged:
            raise Denial(HTTPStatus.UNAUTHORIZED, "invalid_client", "Invalid client id or secret")
        if given.get("scope") != self.scope:
            raise Denial(HTTPStatus.BAD_REQUEST, "invalid_scope", f"The scope {given.get('scope')} is not granted")
        self.seen["exchanged" if exchanged else "asked"] += 1
        lives = {"expires_in": max(1, int(self.tokens_live))}
        return {"access_token": self.token(), "token_type": "bearer", "issued_token_type": ACCESS_TOKEN, **lives}

    def check(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.seen[_client(headers)] += 1
        missing = [name for name, value in self.headers.items() if headers.get(name) != value]
        if missing:
            raise Denial(HTTPStatus.FORBIDDEN, "ForbiddenException", f"The header {missing[0]} is missing or wrong")
        if self.signer:
            return self._check_signature(self.signer, AWSRequest(method, self.uri + path, None, body), headers)
        until = self._tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if until is None:
            raise Denial(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "The token is not one of ours")
        if time.monotonic() > until:
            self.seen["expired"] += 1
            raise Denial(self.expired, "AuthenticationTimeoutException", "The token has expired")
        return None

    def _check_signature(
        self, signer: tuple[str, str, str, str], request: AWSRequest, headers: Mapping[str, str]
    ) -> None:
        key, secret, region, service = signer
        found = SIGNED.match(headers.get("authorization", ""))
        if not found or found.group(1, 2, 3) != (key, region, service):
            raise Denial(HTTPStatus.FORBIDDEN, "ForbiddenException", "The request is not signed as it should be")
        for name in found[4].split(";"):
            request.headers[name] = headers[name]
        url = urlsplit(request.url)
        request.url, request.params = url._replace(query="").geturl(), dict(_pairs(url.query))
        request.context["timestamp"] = headers["x-amz-date"]
        digest = hashlib.sha256(request.data or b"").digest()
        auth = SigV4Auth(Credentials(key, secret), service, region)
        # Java sends the hash in base64, and signs it in hexadecimal digits.
        canonical = auth.canonical_request(request).rsplit("\n", 1)[0] + f"\n{digest.hex()}"
        wanted = auth.signature(auth.string_to_sign(request, canonical), request)
        spelled = {digest.hex(), base64.b64encode(digest).decode()}
        if wanted != found[5] or headers.get("x-amz-content-sha256", digest.hex()) not in spelled:
            raise Denial(HTTPStatus.FORBIDDEN, "ForbiddenException", "The signature does not match")
        self.seen["signed"] += 1

    def dressed(self, answer: bytes, headers: Mapping[str, str]) -> bytes:
        """With credentials for the table's files, if this is a table and they were asked for."""
        asked = headers.get("x-iceberg-access-delegation", "")
        if asked:
            self.seen["delegation asked"] += 1
        if not self.vended or "vended-credentials" not in asked:
            return answer
        table = json.loads(answer) if answer.startswith(b"{") else {}
        if "metadata-location" not in table or "metadata" not in table:
            return answer
        self.seen[f"vended to {_client(headers)}"] += 1
        return json.dumps({**table, "config": {**table.get("config", {}), **self.vended}}).encode()


def _client(headers: Mapping[str, str]) -> str:
    return "pyiceberg" if headers.get("user-agent", "").startswith("PyIceberg") else "spark"


def _basic(authorization: str) -> tuple[str, ...]:
    try:
        return tuple(base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":", 1))
    except (binascii.Error, UnicodeDecodeError):
        return ()


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(key, values[0]) for key, values in parse_qs(query, keep_blank_values=True).items()]
