"""A few pages that nobody can hang: whoever is slow is cut off, whoever asks is answered."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from telemetry import Answer, Pages, as_json, serving
from telemetry.serving import AT_ONCE


def _broken(_: object) -> Answer:
    raise RuntimeError("s3cr3t of the page")


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages("127.0.0.1", 0, {"/good": lambda _: as_json({"a": 1}), "/broken": _broken}).start()
    yield made
    made.close()


def _ask(pages: Pages, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_a_page_is_answered_whatever_stands_behind_its_path(pages: Pages) -> None:
    for path in ("/good", "/good?verbose=1"):
        status, headers, body = _ask(pages, path)
        assert (status, json.loads(body)) == (200, {"a": 1})
        assert headers["content-type"].startswith("application/json")
        assert headers["cache-control"] == "no-store"


def test_head_says_how_long_the_answer_would_be_and_not_more(pages: Pages) -> None:
    status, headers, body = _ask(pages, "/good", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) == len(_ask(pages, "/good")[2])


def test_an_unknown_path_names_those_that_there_are(pages: Pages) -> None:
    for path in ("/", "/bad", "/good/", "/../good", "/%67ood", "//bad"):
        status, _, body = _ask(pages, path)
        assert status == 404, path
        assert json.loads(body)["pages"] == ["/broken", "/good"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed_here(pages: Pages, method: str) -> None:
    status, headers, _ = _ask(pages, "/good", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_other_methods_and_noise_are_refused_and_told_to_nobody(pages: Pages, capfd: Any) -> None:
    assert _ask(pages, "/good", "BREW")[0] == 501
    with socket.create_connection(("127.0.0.1", pages.port), timeout=10) as noise:
        noise.sendall(b"\x16\x03\x01\x00\xff <script>\r\n\r\n")
        said = noise.recv(10_000)
        assert b"400" in said
        assert b"<script>" not in said.replace(b"\\u003c", b"<") or b"application/json" in said
    assert capfd.readouterr() == ("", "")


def test_a_page_that_fails_says_so_and_not_why(pages: Pages) -> None:
    status, _, body = _ask(pages, "/broken")
    assert status == 500
    assert b"s3cr3t" not in body
    assert json.loads(body) == {"error": "this page can't be made: RuntimeError"}


def test_more_silent_connections_than_threads_keep_nobody_from_an_answer(pages: Pages) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", pages.port)) for _ in range(5 * AT_ONCE)]
    began = time.monotonic()
    assert _ask(pages, "/good")[0] == 200
    assert time.monotonic() - began < 2
    assert threading.active_count() - before < 3 * AT_ONCE
    for each in silent:
        each.close()


def test_a_connection_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch, pages: Pages) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", pages.port), timeout=10) as silent:
        silent.sendall(b"GET /go")
        assert silent.recv(100) == b""


def test_pages_that_hang_take_no_more_than_their_threads() -> None:
    go_on = threading.Event()

    def hang(_: object) -> Answer:
        go_on.wait(60)
        return as_json({})

    pages = Pages("127.0.0.1", 0, {"/hang": hang}).start()
    before = threading.active_count()
    asked = []
    for _ in range(4 * AT_ONCE):
        one = socket.create_connection(("127.0.0.1", pages.port), timeout=10)
        one.sendall(b"GET /hang HTTP/1.0\r\n\r\n")
        asked.append(one)
    time.sleep(0.5)
    assert threading.active_count() - before <= 2 * AT_ONCE
    go_on.set()
    for one in asked:
        one.close()
    pages.close()


def test_an_address_that_is_taken_is_an_error_at_once(pages: Pages) -> None:
    with pytest.raises(OSError, match="in use"):
        Pages("127.0.0.1", pages.port, {})


def test_its_port_is_free_again_and_nothing_is_left_running() -> None:
    before = threading.active_count()
    pages = Pages("127.0.0.1", 0, {}).start()
    _ask(pages, "/x")
    pages.close()
    again = Pages("127.0.0.1", pages.port, {})
    again.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before  # another test's may end meanwhile


def test_it_listens_on_ipv6_as_well() -> None:
    try:
        pages = Pages("::1", 0, {"/good": lambda _: as_json({})}).start()
    except OSError:
        pytest.skip("no IPv6 here")
    assert pages.url.startswith("http://[::1]:")
    pages.close()
