"""A few pages that nobody can hang: whoever is slow is cut off, whoever asks is answered."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from telemetry import HttpAnswer, HttpPages, as_json, http_pages
from telemetry.http_pages import AT_ONCE


def _broken(_: object) -> HttpAnswer:
    raise RuntimeError("s3cr3t of the page")


@pytest.fixture
def pages() -> Iterator[HttpPages]:
    made = HttpPages("127.0.0.1", 0, {"/good": lambda _: as_json({"a": 1}), "/broken": _broken}).start()
    yield made
    made.close()


def _ask(
    pages: HttpPages, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=10)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


class TestPage:
    def test_is_served_with_or_without_a_query_string(self, pages: HttpPages) -> None:
        for path in ("/good", "/good?verbose=1"):
            status, headers, body = _ask(pages, path)
            assert (status, json.loads(body)) == (200, {"a": 1})
            assert headers["content-type"].startswith("application/json")
            assert headers["cache-control"] == "no-store"

    def test_answers_head_with_its_length_and_no_body(self, pages: HttpPages) -> None:
        status, headers, body = _ask(pages, "/good", "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) == len(_ask(pages, "/good")[2])

    def test_that_does_not_exist_is_answered_with_the_list_of_pages(self, pages: HttpPages) -> None:
        for path in ("/", "/bad", "/good/", "/../good", "/%67ood", "//bad"):
            status, _, body = _ask(pages, path)
            assert status == 404, path
            assert json.loads(body)["pages"] == ["/broken", "/good"]

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
    def test_refuses_methods_that_change_something(self, pages: HttpPages, method: str) -> None:
        status, headers, _ = _ask(pages, "/good", method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")

    def test_refuses_unknown_methods_and_noise_without_a_line_of_output(self, pages: HttpPages, capfd: Any) -> None:
        assert _ask(pages, "/good", "BREW")[0] == 501
        with socket.create_connection(("127.0.0.1", pages.port), timeout=10) as noise:
            noise.sendall(b"\x16\x03\x01\x00\xff <script>\r\n\r\n")
            said = noise.recv(10_000)
            assert b"400" in said
            assert b"<script>" not in said.replace(b"\\u003c", b"<") or b"application/json" in said
        assert capfd.readouterr() == ("", "")

    def test_that_fails_names_the_error_type_but_not_its_message(self, pages: HttpPages) -> None:
        status, _, body = _ask(pages, "/broken")
        assert status == 500
        assert b"s3cr3t" not in body
        assert json.loads(body) == {"error": "this page can't be made: RuntimeError"}


class TestSlowClients:
    def test_that_send_nothing_keep_nobody_from_an_answer(self, pages: HttpPages) -> None:
        before = threading.active_count()
        silent = [socket.create_connection(("127.0.0.1", pages.port)) for _ in range(5 * AT_ONCE)]
        began = time.monotonic()
        assert _ask(pages, "/good")[0] == 200
        assert time.monotonic() - began < 2
        assert threading.active_count() - before < 3 * AT_ONCE
        for each in silent:
            each.close()

    def test_that_send_a_line_now_and_then_keep_nobody_from_an_answer(self, pages: HttpPages) -> None:
        """They never say nothing for long, so it is the bound on connections that ends them."""
        dripping = [socket.create_connection(("127.0.0.1", pages.port)) for _ in range(5 * AT_ONCE)]
        for line in (b"GET /good HTTP/1.1\r\n", b"X-A: b\r\n", b"X-A: b\r\n"):
            for each in dripping:
                with suppress(OSError):  # it was cut off
                    each.sendall(line)
            began = time.monotonic()
            assert _ask(pages, "/good")[0] == 200
            assert time.monotonic() - began < 2
        for each in dripping:
            each.close()

    def test_of_a_page_that_hangs_keep_nobody_from_another_page(self) -> None:
        go_on = threading.Event()

        def hang(_: object) -> HttpAnswer:
            go_on.wait(60)
            return as_json({})

        pages = HttpPages("127.0.0.1", 0, {"/hang": hang, "/good": lambda _: as_json({})}).start()
        asked = []
        for _ in range(AT_ONCE + 2):
            asked.append(socket.create_connection(("127.0.0.1", pages.port), timeout=10))
            asked[-1].sendall(b"GET /hang HTTP/1.0\r\n\r\n")
        time.sleep(0.5)
        began = time.monotonic()
        assert _ask(pages, "/good")[0] == 200
        assert time.monotonic() - began < 2
        go_on.set()
        for each in asked:
            each.close()
        pages.close()

    def test_are_disconnected_after_a_silence(self, monkeypatch: pytest.MonkeyPatch, pages: HttpPages) -> None:
        monkeypatch.setattr(http_pages._Handler, "timeout", 0.2)
        with socket.create_connection(("127.0.0.1", pages.port), timeout=10) as silent:
            silent.sendall(b"GET /go")
            assert silent.recv(100) == b""

    def test_of_a_page_that_hangs_occupy_a_bounded_number_of_threads(self) -> None:
        go_on = threading.Event()

        def hang(_: object) -> HttpAnswer:
            go_on.wait(60)
            return as_json({})

        pages = HttpPages("127.0.0.1", 0, {"/hang": hang}).start()
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


class TestServer:
    def test_refuses_an_address_that_is_in_use(self, pages: HttpPages) -> None:
        with pytest.raises(OSError, match="in use"):
            HttpPages("127.0.0.1", pages.port, {})

    def test_leaves_no_thread_and_frees_its_port_when_closed(self) -> None:
        before = threading.active_count()
        pages = HttpPages("127.0.0.1", 0, {}).start()
        _ask(pages, "/x")
        pages.close()
        again = HttpPages("127.0.0.1", pages.port, {})
        again.close()
        deadline = time.monotonic() + 10
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert threading.active_count() <= before  # another test's may end meanwhile

    def test_listens_on_ipv6(self) -> None:
        try:
            pages = HttpPages("::1", 0, {"/good": lambda _: as_json({})}).start()
        except OSError:
            pytest.skip("no IPv6 here")
        assert pages.url.startswith("http://[::1]:")
        pages.close()


class TestRequest:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example"},
            {"Host": "evil.example:8080"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "localhost.evil.example"},
            {"Host": "[::1].evil.example"},
            {"Host": "10.0.0.5"},
            {"Host": ""},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        ],
    )
    def test_from_another_site_is_refused(self, pages: HttpPages, headers: Mapping[str, str]) -> None:
        """Not even where its name was made to lead to this machine."""
        status, _, body = _ask(pages, "/good", headers=headers)
        assert status == 403
        assert set(json.loads(body)) == {"error"}

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "localhost"},
            {"Host": "LOCALHOST:8080"},
            {"Host": "127.0.0.1:9"},
            {"Host": "127.8.8.8"},
            {"Host": "[::1]:8080"},
            {"Host": "127.0.0.1:80", "Origin": "http://127.0.0.1:80", "Sec-Fetch-Site": "same-origin"},
            {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        ],
    )
    def test_by_a_name_of_this_machine_or_from_a_link_is_answered(
        self, pages: HttpPages, headers: Mapping[str, str]
    ) -> None:
        assert _ask(pages, "/good", headers=headers)[0] == 200

    def test_without_a_host_name_is_answered(self, pages: HttpPages) -> None:
        """Some do, by HTTP/1.0; no browser does."""
        with socket.create_connection(("127.0.0.1", pages.port), timeout=10) as probe:
            probe.sendall(b"GET /good HTTP/1.0\r\n\r\n")
            assert b" 200 " in probe.recv(1_000)

    def test_by_a_configured_host_name_is_answered(self, pages: HttpPages) -> None:
        refused = json.loads(_ask(pages, "/good", headers={"Host": "proxy.example:443"})[2])
        assert "'proxy.example'" in refused["error"]
        told = HttpPages(
            "127.0.0.1", 0, {"/good": lambda _: as_json({})}, ["Proxy.example"], " or see the manual"
        ).start()
        try:
            assert _ask(told, "/good", headers={"Host": "proxy.example:443"})[0] == 200
            assert _ask(told, "/good")[0] == 200
            status, _, body = _ask(told, "/good", headers={"Host": "evil.example"})
            assert status == 403
            assert json.loads(body)["error"].endswith("ask by 127.0.0.1 or see the manual")
        finally:
            told.close()

    @pytest.mark.parametrize(("hosts", "by_name"), [([], 200), (["ingest.example"], 403)])
    def test_from_the_network_is_answered_by_address_and_configured_names(self, hosts: list[str], by_name: int) -> None:
        """A probe of Kubernetes says the pod's address; without names nobody can say which are its own."""
        pages = HttpPages("0.0.0.0", 0, {"/good": lambda _: as_json({})}, hosts).start()
        try:
            for host in ("10.0.0.5:8080", "[fd00::5]:8080", "localhost:8080", *hosts):
                assert _ask(pages, "/good", headers={"Host": host})[0] == 200, host
            assert _ask(pages, "/good", headers={"Host": "node-7.cluster:8080"})[0] == by_name
            assert _ask(pages, "/good", headers={"Origin": "http://evil.example"})[0] == 403
        finally:
            pages.close()
