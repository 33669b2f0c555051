"""A proxy before a REST catalog or an object store that does harm by plan, before or after a request took effect.

with Faulty(rest_uri) as proxy:
    fault = proxy.fail(503, when=AFTER, path=r"/tables/events$", body='"ref-name":"main"', meanwhile=compact)
    ...
    assert fault.struck == 1
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from types import TracebackType
from typing import Literal
from urllib.parse import unquote, urlsplit

from tests.services.fronts import Answer, Front, Request, passed_on

BEFORE: Literal["before"] = "before"
AFTER: Literal["after"] = "after"
When = Literal["before", "after"]
RESET = 0  # instead of a status: the connection is reset
NOTHING = -1  # likewise: the true answer comes, after what else the fault does
EFFECT = range(200, 300)


@dataclass
class Fault:
    """What is done to the next so many requests that match; `struck` counts those that it was done to."""

    status: int
    when: When
    method: str
    path: re.Pattern[str]
    body: re.Pattern[str]
    agent: re.Pattern[str]
    times: int
    headers: Mapping[str, str]
    said: str
    delay: float  # seconds
    meanwhile: Callable[[], object]
    struck: int = 0
    begun: int = 0
    requests: list[Request] = field(default_factory=list)  # that it was done to

    def takes(self, request: Request) -> bool:
        path, headers = unquote(urlsplit(request.path).path), {name.lower(): value for name, value in request.headers}
        return (
            self.begun < self.times
            and re.fullmatch(self.method, request.method) is not None
            and self.path.search(path) is not None
            and self.agent.search(headers.get("user-agent", "")) is not None
            and self.body.search(text_of(request.body)) is not None
        )

    @property
    def is_over(self) -> bool:
        return self.struck >= self.times


@dataclass
class Faulty(Front):
    """Without a plan it passes everything on."""

    upstream: str
    log: list[str] = field(default_factory=list)
    _plan: list[Fault] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _closing: Event = field(default_factory=Event)

    def fail(
        self,
        status: int,
        *,
        when: When = BEFORE,
        method: str = "POST",
        path: str = "",
        body: str = "",
        agent: str = "",
        times: int = 1,
        headers: Mapping[str, str] | None = None,
        said: str = "",
        delay: float = 0.0,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Fault:
        """The rest are regular expressions of what it is done to, and what happens besides."""
        patterns = (re.compile(path), re.compile(body), re.compile(agent))
        fault = Fault(status, when, method, *patterns, times, headers or {}, said, delay, meanwhile)
        self._plan.append(fault)
        return fault

    def heal(self) -> None:
        """Whatever is planned happens no more."""
        self._plan.clear()

    def answer(self, request: Request) -> Answer | None:
        fault = self._struck_by(request)
        if fault is None:
            return passed_on(self.upstream, request)
        answer = passed_on(self.upstream, request) if fault.when == AFTER else None
        if answer and answer.status not in EFFECT:  # nothing happened that anybody could be deceived about
            fault.begun -= 1
            return answer
        fault.meanwhile()
        self._closing.wait(fault.delay)
        self.log.append(f"{fault.status} {fault.when} {request.method} {request.path}")
        fault.requests.append(request)
        fault.struck += 1
        if fault.status == NOTHING:
            return answer or passed_on(self.upstream, request)
        return None if fault.status == RESET else _failure(fault)

    def _struck_by(self, request: Request) -> Fault | None:
        with self._lock:
            fault = next((each for each in self._plan if each.takes(request)), None)
            if fault:
                fault.begun += 1
            return fault

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        super().__exit__(kind, error, trace)


def _failure(fault: Fault) -> Answer:
    error = {"message": "planned by a test", "type": "PlannedException", "code": fault.status}
    plain = Answer(fault.status, fault.said.encode() or json.dumps({"error": error}).encode())
    return replace(plain, headers=(*plain.headers, *fault.headers.items()))


def text_of(body: bytes) -> str:
    return (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode("latin-1")
