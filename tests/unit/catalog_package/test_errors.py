"""Every answer of a server becomes one of our exceptions, in one sentence without secrets."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from errno import ENOSPC
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pyiceberg.exceptions import BadRequestError
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from catalog import (
    CatalogError,
    Conflict,
    Connection,
    Denied,
    FilesUnwritable,
    NamespaceMissing,
    OutcomeUnknown,
    RequestRefused,
    TableMissing,
    TableSpec,
    Unreachable,
    connect,
    create_table,
    inspect,
    load,
)
from catalog.connection import CatalogClient
from catalog.errors import ClocksDiffer, redacted, translated
from catalog.specs import HIDDEN_KEYS, Column

SECRET = "s3cr3t-value"
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, str]]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server that says what it is told to, whatever the question."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answer(self)
            # Who was kept waiting may have hung up.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

        do_GET = do_HEAD = do_POST = handle_any  # noqa: N815 - the names that the server looks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(status: int, message: str = "no") -> tuple[int, str]:
    return status, json.dumps({"error": {"message": message, "type": "SomeException", "code": status}})


def after_connecting(answer: Answer) -> Answer:
    def routed(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        if request.path.startswith("/v1/config"):
            return 200, json.dumps({"defaults": {}, "overrides": {}})
        return answer(request)

    return routed


@contextmanager
def lake_answering(answer: Answer) -> Iterator[CatalogClient]:
    with serving(after_connecting(answer)) as uri:
        lake = connect(Connection(uri, token=SECRET))
        try:
            yield lake
        finally:
            lake.close()


def send_commit(lake: CatalogClient) -> None:
    table: Any = SimpleNamespace(name=lambda: ("n", "t"), config={})
    with lake.calling("committing", committing=True):
        lake.pyiceberg.commit_table(table, (), ())


METADATA = {
    "format-version": 2,
    "location": "file:/t",
    "last-updated-ms": 1,
    "last-column-id": 1,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "last-sequence-number": 0,
}
TOO_NEW = [{"id": 1, "name": "v", "type": "variant", "required": False}]


class TestAnswer:
    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (400, RequestRefused),
            (401, Denied),
            (403, Denied),
            (404, TableMissing),
            (419, Denied),
            (429, Unreachable),
            (500, Unreachable),
            (501, RequestRefused),
            (502, Unreachable),
            (503, Unreachable),
            (504, Unreachable),
        ],
    )
    def test_with_an_error_status_raises_one_of_our_exceptions(self, status: int, expected: type[CatalogError]) -> None:
        with lake_answering(lambda _: refusal(status, f"bearer of {SECRET}, Bearer x.y.z")) as lake:
            with pytest.raises(expected) as raised:
                load(lake, "n.t")
            assert SECRET not in str(raised.value)
            assert "x.y.z" not in str(raised.value)
            assert "loading table n.t" in str(raised.value)

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (400, RequestRefused),
            (401, Denied),
            (404, TableMissing),
            (409, Conflict),
            (429, Unreachable),
            (500, OutcomeUnknown),
            (502, OutcomeUnknown),
            (503, OutcomeUnknown),
            (504, OutcomeUnknown),
            (507, OutcomeUnknown),
        ],
    )
    def test_to_a_commit_shows_whether_it_may_have_taken_effect(
        self, status: int, expected: type[CatalogError]
    ) -> None:
        with lake_answering(lambda _: refusal(status)) as lake, pytest.raises(expected):
            send_commit(lake)

    def test_to_a_commit_that_is_unreadable_leaves_the_outcome_unknown(self) -> None:
        with lake_answering(lambda _: (200, "<html>")) as lake, pytest.raises(OutcomeUnknown):
            send_commit(lake)

    def test_about_a_missing_namespace_names_it(self) -> None:
        with (
            lake_answering(lambda _: refusal(404, "Namespace does not exist: n")) as lake,
            pytest.raises(NamespaceMissing, match="n"),
        ):
            create_table(lake, TableSpec("n.t", (Column("id", "long"),)))

    def test_that_does_not_come_in_time_means_unreachable(self) -> None:
        over = Event()

        def hang(_: BaseHTTPRequestHandler) -> tuple[int, str]:
            over.wait(10)
            return refusal(500)

        with serving(hang) as uri:
            started = time.monotonic()
            with pytest.raises(Unreachable, match="no answer in time"):
                connect(Connection(uri, read_timeout=0.3))
            assert time.monotonic() - started < 5
            over.set()

    def test_of_a_server_that_is_no_catalog_is_refused(self) -> None:
        with serving(lambda _: (200, "<html>welcome</html>")) as uri, pytest.raises(RequestRefused, match="not one of"):
            connect(Connection(uri))
        with serving(lambda _: (404, "<html>nothing</html>")) as uri, pytest.raises(RequestRefused):
            connect(Connection(uri))

    @pytest.mark.parametrize(
        ("metadata", "said"),
        [
            ({"format-version": 9}, "the table has format version 9, and understood are 1, 2, 3"),
            ({"schemas": [{"type": "struct", "schema-id": 0, "fields": TOO_NEW}]}, "a column of type 'variant'"),
            ({"schemas": "nonsense"}, "not one of an Iceberg REST catalog"),
        ],
    )
    def test_with_an_unsupported_table_names_what_is_unsupported(self, metadata: dict[str, object], said: str) -> None:
        body = json.dumps({"metadata-location": "file:/m", "metadata": {**METADATA, **metadata}})
        with lake_answering(lambda _: (200, body)) as lake:
            with pytest.raises(RequestRefused, match=said):
                load(lake, "n.t")
            assert said in inspect(lake, "n.t").refusal
            with pytest.raises(RequestRefused, match=said):
                create_table(lake, TableSpec("n.t", (Column("id", "long"),)))


class TestCredentials:
    def test_with_an_unknown_token_are_denied_without_showing_it(self) -> None:
        with serving(lambda _: refusal(401, f"unknown token {SECRET}")) as uri:
            with pytest.raises(Denied) as raised:
                connect(Connection(uri, token=SECRET))
            assert SECRET not in str(raised.value)

    def test_of_an_unknown_client_are_denied_without_showing_them(self) -> None:
        answer = 401, json.dumps({"error": "invalid_client", "error_description": f"who is {SECRET}"})
        with serving(lambda _: answer) as uri:
            properties = {"credential": f"me:{SECRET}", "oauth2-server-uri": f"{uri}/token"}
            with pytest.raises(Denied) as raised:
                connect(Connection(uri, properties=properties))
            assert SECRET not in str(raised.value)

    def test_under_a_hidden_key_are_not_shown(self) -> None:
        with serving(lambda _: refusal(401, f"who is {SECRET}")) as uri:
            for hidden, shown in ((HIDDEN_KEYS, True), (f"{HIDDEN_KEYS}|gate", False)):
                with pytest.raises(Denied) as raised:
                    connect(Connection(uri, properties={"gate": SECRET}, hidden_keys=hidden))
                assert (SECRET in str(raised.value)) is shown

    def test_are_sent_only_if_configured(self) -> None:
        sent: list[str | None] = []

        def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
            sent.append(request.headers.get("Authorization"))
            return 200, json.dumps({"defaults": {}, "overrides": {}})

        with serving(answer) as uri:
            connect(Connection(uri))
            connect(Connection(uri, token=SECRET))
            connect(Connection(uri, properties={"header.Authorization": "Basic abc"}))
        assert sent == [None, f"Bearer {SECRET}", "Basic abc"]

    def test_in_urls_and_headers_are_masked(self) -> None:
        text = "http://me:word@host/x said Authorization: Bearer abc.def and Basic Zm9v"
        assert redacted(text, ()) == "http://***host/x said Authorization: Bearer *** and Basic ***"


class TestTranslation:
    @pytest.mark.parametrize(
        ("raised", "committing", "expected"),
        [
            (IntegrityError, False, Conflict),
            (IntegrityError, True, Conflict),
            (OperationalError, False, Unreachable),
            (OperationalError, True, OutcomeUnknown),
            (ProgrammingError, True, RequestRefused),
        ],
    )
    def test_turns_database_errors_into_ours_without_the_statement(
        self, raised: type[DBAPIError], expected: type[CatalogError], *, committing: bool
    ) -> None:
        """Those of pyiceberg's catalog over one, which lets them through; without the statement and its parameters."""
        with (
            pytest.raises(expected) as told,
            translated("making it", committing=committing),
        ):
            raise raised("INSERT", {"secret": SECRET}, Exception("database is locked"))
        assert str(told.value) == "making it: database is locked"

    @pytest.mark.parametrize(("committing", "expected"), [(True, Conflict), (False, RequestRefused)])
    def test_calls_invalid_metadata_a_conflict_only_for_a_commit(
        self, expected: type[CatalogError], *, committing: bool
    ) -> None:
        """As Java's catalog answers 400; where it says so of what it has, no patience helps."""
        answer = requests.Response()
        answer.status_code = 400
        said = "ValidationException: Invalid snapshot with sequence number 2 greater than last sequence number 1"
        with pytest.raises(expected), translated("staging", committing=committing):
            raise BadRequestError(said) from requests.HTTPError(response=answer)

    def test_calls_an_outdated_sequence_number_a_conflict(self) -> None:
        """As pyiceberg's own catalogs say it, without a server."""
        with pytest.raises(Conflict), translated("staging"):
            raise ValueError("Cannot add snapshot with sequence number 3 older than last sequence number 3")

    def test_names_what_a_full_disk_says_without_the_path_before_it(self) -> None:
        said = f"[Errno 28] Error writing bytes to file {'/long' * 80}. Detail: [errno 28] No space left on device"
        with pytest.raises(FilesUnwritable) as told, translated("appending to ns.t"):
            raise OSError(ENOSPC, said)
        assert str(told.value) == "appending to ns.t: No space left on device"


class TestClock:
    """Java's catalog answers 400 where a commit's time does not follow those of the table by its own clock."""

    HERE = 1_700_000_000
    AHEAD = "Invalid update timestamp 1700000000000: before last snapshot log entry at 1700000070000"
    BEHIND = "Invalid snapshot timestamp 1700000000000: before last snapshot timestamp 1700000070000"
    UPDATED = "Invalid snapshot timestamp 1700000000000: before last updated timestamp 1700000070000"

    @pytest.mark.parametrize("said", [AHEAD, BEHIND, UPDATED])
    @pytest.mark.parametrize(
        ("catalogs", "expected"),
        [
            (HERE - 70, "this machine's clock is 70 s ahead of the catalog's"),
            (HERE + 3_600, "this machine's clock is 3600 s behind the catalog's"),
            (HERE + 1, "another writer's clock was 70 s ahead of this machine's and the catalog's"),
            (None, "the clocks of this machine, the catalog and its other writers differ by 70 s"),
        ],
    )
    def test_that_is_wrong_is_named(
        self, said: str, catalogs: float | None, expected: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "time", lambda: self.HERE)
        answer = requests.Response()
        answer.status_code = 400
        if catalogs:
            answer.headers["Date"] = formatdate(catalogs, usegmt=True)
        with pytest.raises(ClocksDiffer) as told, translated("appending", committing=True):
            raise BadRequestError(f"BadRequestException: {said}") from requests.HTTPError(response=answer)
        assert str(told.value).startswith(f"appending: {expected}, and Iceberg allows 60 s; ")
