"""A server on loopback that stands before another one: what every such front does, whatever it does it for."""

import http.client
import socket
import struct
import sys
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from http import HTTPMethod, HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from lakehouse_ingest.environment.embedded.claim import LOOPBACK
from tests.services.doors import token_at

PATIENCE = 60.0
OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "te", "upgrade"}
WITHOUT_BODY = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # with its query
    headers: Headers
    body: bytes = b""

    def without(self, *names: str) -> "Request":
        return replace(self, headers=tuple((name, value) for name, value in self.headers if name.lower() not in names))


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Headers = (("Content-Type", "application/json"),)


class Front:
    """Serves while its block lasts; `answer` gives None to have the connection reset."""

    def answer(self, request: Request) -> Answer | None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._server = _Server((LOOPBACK, 0), type("Bound", (_Handler,), {"front": self}))
        name = type(self).__name__
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name=name, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}"


def passed_on(upstream: str, request: Request) -> Answer:
    """As it came, with the client's `Host`, which a signature may cover; but for the token of an embedded catalog.

    A new connection each time: one that is kept may be closed at the other end just now.
    """
    with closing(http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=PATIENCE)) as connection:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        if token := token_at(upstream):
            request = request.without("authorization")
            connection.putheader("Authorization", f"Bearer {token}")
        for name, value in _of_more_hops(request.headers):
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        response = connection.getresponse()
        headers = response.getheaders()
        # Of what is only asked about, the length is part of the answer.
        length = [each for each in headers if request.method == HTTPMethod.HEAD and each[0].lower() == "content-length"]
        return Answer(response.status, response.read(), (*_of_more_hops(headers), *length))


def _of_more_hops(headers: Iterable[tuple[str, str]]) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() not in OF_ONE_HOP)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # many come at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed, or that has waited long enough, is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms until the client has acknowledged the headers
    front: Front

    def _serve(self) -> None:
        answer = self.front.answer(Request(self.command, self.path, tuple(self.headers.items()), self._body()))
        if answer is None:
            return self._reset()
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if self.command != HTTPMethod.HEAD and answer.status not in WITHOUT_BODY:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != HTTPMethod.HEAD:
            self.wfile.write(answer.body)
        return None

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _reset(self) -> None:
        """With nothing lingering, to close is to reset; the reader holds the socket as well."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = _serve  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None: ...
