"""A Maven repository on this machine, which serves a folder and may cut, refuse or spoil what it sends."""

import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lakehouse_ingest.environment.jars.lock import Jar

LOOPBACK = "127.0.0.1"


def locked_as(path: str, content: bytes) -> Jar:
    return Jar(path, sha256(content).hexdigest(), len(content))


def put_into(root: Path, path: str, content: bytes) -> Jar:
    """The file is in the repository, and the lock is right about it."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return locked_as(path, content)


@dataclass
class Maven:
    root: Path
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, and range if any
    statuses: dict[str, list[int]] = field(default_factory=dict)  # what the next requests for a file are answered
    cuts: dict[str, list[int]] = field(default_factory=dict)  # after how many bytes the next connections break
    ranges: bool = True
    login: str = ""  # asked of every request
    before: Callable[[str], Any] = lambda path: path
    uri: str = ""

    @property
    def requests(self) -> Counter[str]:
        return Counter(path.rpartition("/")[2] for path, _ in self.asked)

    @contextmanager
    def serving(self) -> Iterator["Maven"]:
        with ThreadingHTTPServer((LOOPBACK, 0), partial(_Handler, self)) as server:
            self.uri = f"http://{LOOPBACK}:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def __init__(self, maven: Maven, *arguments: Any) -> None:
        self.maven = maven
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        name, asked = path.rpartition("/")[2], self.headers.get("Range", "")
        self.maven.asked.append((path, asked))
        self.maven.before(path)
        file = self.maven.root / path.lstrip("/")
        given = b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        status = next(iter(self.maven.statuses.get(name, [])), 401 if given != self.maven.login else 0)
        if self.maven.statuses.get(name):
            self.maven.statuses[name].pop(0)
        if status or not file.is_file():
            self.send(status or 404, b"", 0)
            return
        content = file.read_bytes()
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.maven.ranges else 0
        cuts = self.maven.cuts.get(name)
        self.send(206 if start else 200, content[start:], cuts.pop(0) if cuts else len(content))

    def send(self, status: int, content: bytes, until: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:until])
        if until < len(content):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def finish(self) -> None:
        super().finish()
        self.connection.close()
