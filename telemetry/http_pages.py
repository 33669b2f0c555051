"""A few pages over HTTP to watch this process. No client can make them hang or swamp them.

Each connection has a thread of its own, and there are few of them. When all are taken, the oldest connection is cut off
for the newest. A connection that sends or takes nothing for a while is cut off as well.

There is no login. Still, no page of another site can read anything here: neither by asking, nor under a host name that
it points to this machine.

Why no WSGI server: waitress 3.0.2 was tried. At its connection limit it accepts no more. With a limit of 24, forty
clients that each sent a header every half second left `/live` without an answer for 20 seconds; so did ten requests for
a page that hangs, with 8 threads. A supervisor would then restart a healthy pipeline. Here both cases get their answer
at once, and `tests/unit/telemetry_package/test_http_pages.py` holds that.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Self
from urllib.parse import urlsplit

AT_ONCE = 8  # connections
SILENCE_S = 5.0  # of one of them, in either direction
LOOK_S = 0.2  # how soon the end is noticed
JSON = "application/json; charset=utf-8"


@dataclass(frozen=True)
class HttpAnswer:
    body: bytes
    kind: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[Mapping[str, str]], HttpAnswer]
"""Gets the headers of a request, their names in lower case."""


def as_json(value: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n", JSON, status)


class HttpPages:
    """Listens as soon as it is made, so an address that is taken is an OSError here."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], hosts: Collection[str] = (), advice: str = ""
    ) -> None:
        """`hosts`: more host names that a request may use. `advice`: what to do about a name that is missing."""
        family, address = _resolved(host, port)
        names = _Names(host, address[0], frozenset(map(str.lower, hosts)), advice)
        self._server = _Server(family, address, dict(pages), names)
        self._thread = Thread(target=self._server.serve_forever, args=(LOOK_S,), name="pages", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._server.cut_all()


@dataclass(frozen=True)
class _Names:
    """The host names that a request may use. A page can point any other name here, but it cannot point an address."""

    host: str
    address: str
    more: frozenset[str]
    advice: str

    def refusal(self, headers: Mapping[str, str]) -> HttpAnswer | None:
        asked, origin = headers.get("host"), headers.get("origin")
        if asked is not None and not self._fits(asked):  # every browser sends one; a simple probe may not
            said = f"this port is not known by the name {_name_in(asked)!r}, and a web page could have made it up"
            return as_json({"error": f"{said}; ask by {self.host}{self.advice}"}, 403)
        # A person who follows a link from another site sees the page; that site does not.
        link = headers.get("sec-fetch-dest") == "document" and headers.get("sec-fetch-mode") == "navigate"
        strange = headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not link
        if strange or (origin is not None and urlsplit(origin).netloc != asked):
            return as_json({"error": "a page of another site asked for this; open it in a window of its own"}, 403)
        return None

    def _fits(self, asked: str) -> bool:
        name = _name_in(asked)
        if name in self.more or name == "localhost" or name == self.host.lower():
            return True
        try:
            by_address = ipaddress.ip_address(name)
        except ValueError:
            # Where it listens for the whole network, nobody can say which names are its own, unless `hosts` do.
            return not self.more and not ipaddress.ip_address(self.address).is_loopback
        return by_address.is_loopback or not ipaddress.ip_address(self.address).is_loopback


def _name_in(host: str) -> str:
    """Without the port, and an address of IPv6 without its brackets."""
    found = re.fullmatch(r"\[([0-9a-f:.]+)\](:\d*)?|([^:\[\]]*)(:\d*)?", host.lower())
    return (found[1] or found[3] or "") if found else ""


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, address


class _Server(ThreadingMixIn, TCPServer):
    # Not http.server's HTTPServer: it asks the network for the host's name, and may wait for the answer.
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self, family: socket.AddressFamily, address: tuple[Any, ...], pages: dict[str, Page], names: _Names
    ) -> None:
        self.address_family = family
        self.pages, self.names = pages, names
        self._open: dict[socket.socket, None] = {}  # in the order in which they came
        self._alive = 0
        self._lock = Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= AT_ONCE else None
            if oldest is not None:
                del self._open[oldest]
                _cut(oldest)
            # Connections that were cut off end at once, unless a page of ours hangs.
            full = self._alive >= 2 * AT_ONCE
            if not full:
                self._open[request] = None
                self._alive += 1
        if full:
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._alive -= 1

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        with self._lock:
            for each in self._open:
                _cut(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no news."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENCE_S
    server_version, sys_version = "lakehouse-ingest", ""
    error_message_format = '{"error": "%(code)d %(message)s"}\n'
    error_content_type = JSON

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if refusal := self.server.names.refusal(headers):
            self._send(refusal)
            return
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            self._send(as_json({"error": "no such page", "pages": sorted(self.server.pages)}, 404))
            return
        try:
            answer = page(headers)
        except Exception as failure:  # noqa: BLE001 - the client learns that there is no answer, not why
            answer = as_json({"error": f"this page can't be made: {type(failure).__name__}"}, 500)
        self._send(answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        refusal = as_json({"error": "only GET and HEAD"}, 405)
        self._send(replace(refusal, headers={"Allow": "GET, HEAD"}))

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **answer.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        """A client that polls every second is no news."""
