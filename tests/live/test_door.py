"""The embedded catalog obeys only its own user: no web page and no other user. It stays within its warehouse."""

import http.client
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import SIGTERM
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import UnauthorizedError

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.claim import LOOPBACK, Note
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables import PipelineTables
from lakehouse_ingest.tables.clients import connection_of, embedded_token
from tests.services.doors import client, known
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import Pipelines, arguments, settings_text

pytestmark = pytest.mark.live

PLACE = "s3://lake/house"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}
EVIL = "http://evil.example"
JSON = "application/json"


class Door:
    """What it answers to a request that is made by hand."""

    def __init__(self, catalog: EmbeddedCatalog) -> None:
        note = catalog.claim.read()
        assert note
        self.catalog, self.note, self.warehouse = catalog, note, catalog.warehouse

    def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(LOOPBACK, self.note.port, timeout=30)
        sent = {"Authorization": f"Bearer {self.note.token if token is None else token}", "Content-Type": JSON}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, str | None) else json.dumps(body)
        try:
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            answer = connection.getresponse()
            said = answer.read()
            return answer.status, json.loads(said) if said else {}
        finally:
            connection.close()

    def make(self, name: str, **more: Any) -> tuple[int, dict[str, Any]]:
        return self.ask("POST", "/v1/namespaces/ours/tables", {"name": name, "schema": SCHEMA, **more})

    def tables(self) -> set[str]:
        return {each["name"] for each in self.ask("GET", "/v1/namespaces/ours/tables")[1]["identifiers"]}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[Door]:
    """With a namespace and a table in it."""
    with EmbeddedCatalog(tmp_path_factory.mktemp("door") / "a lake of an Übung", port=0, jars=jars_folder) as catalog:
        made = Door(catalog)
        assert made.ask("POST", "/v1/namespaces", {"namespace": ["ours"]})[0] == 200
        assert made.make("kept")[0] == 200
        yield made


def outside(warehouse: Path) -> list[object]:
    theirs = warehouse.with_name("theirs")
    return [
        f"file://{theirs}",
        f"file:{theirs}",
        f"FILE://{theirs}",
        f"{theirs}",
        f"/{theirs}",
        f"file:/{theirs}",
        "file://victim",
        f"file:/{warehouse}/t",
        f"file:///{'/'.join(warehouse.parts[1:])}/../theirs",
        f"file://{warehouse}/x/../../theirs",
        f"file://{warehouse}/%2e%2e/theirs",
        f"file://{warehouse}/%2E./theirs",
        f"file://{warehouse}-theirs/t",
        f"{warehouse.parent}",
        f" file://{warehouse}/t",
        "theirs",
        "",
        "s3://theirs/t",
        "s3a://lake/house",
        "hdfs://name/theirs",
        "http://evil.example/t",
        "file:",
        "file:///",
        f"file://{warehouse}\n/t",
        7,
    ]


class TestRequest:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example:8181"},
            {"Host": "localhost.evil.example"},
            {"Host": "0.0.0.0:8181"},
            {"Origin": EVIL},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
        ],
    )
    @pytest.mark.parametrize("known", [True, False], ids=["with the token", "without"])
    def test_of_a_web_page_neither_reads_nor_changes_anything(
        self,
        door: Door,
        headers: Mapping[str, str],
        known: bool,  # noqa: FBT001
    ) -> None:
        """Neither under its own name nor under one that it points to this machine, even if it knew the token."""
        token = None if known else ""
        before = door.tables()
        renaming = {name: {"namespace": ["ours"], "name": name} for name in ("source", "destination")}
        for method, path, body in (
            ("GET", "/v1/config", None),
            ("GET", "/v1/namespaces/ours/tables/kept", None),
            ("OPTIONS", "/v1/namespaces", None),
            ("POST", "/v1/namespaces", {"namespace": ["theirs"]}),
            ("POST", "/v1/tables/rename", {**renaming, "source": {"namespace": ["ours"], "name": "kept"}}),
            ("DELETE", "/v1/namespaces/ours/tables/kept", None),
        ):
            status, said = door.ask(method, path, body, token=token, **headers)
            assert (status, set(said)) == (403, {"error"}), path
            assert said["error"]["type"] == "ForbiddenException"
        assert door.tables() == before

    @pytest.mark.parametrize(
        "kind",
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/plain; application/json"],
    )
    def test_of_a_kind_that_browsers_send_unasked_is_refused(self, door: Door, kind: str) -> None:
        """A browser asks the server before it sends JSON, but not before it sends these."""
        status, said = door.ask("POST", "/v1/namespaces", '{"namespace": ["theirs"]}', Content_Type=kind)
        assert (status, said["error"]["code"]) == (415, 415)
        assert ["theirs"] not in door.ask("GET", "/v1/namespaces")[1]["namespaces"]

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8181", "LOCALHOST", "[::1]:80"])
    def test_through_a_tunnel_is_let_in(self, door: Door, host: str) -> None:
        assert door.ask("GET", "/v1/config", Host=host, Sec_Fetch_Site="none")[0] == 200

    @pytest.mark.parametrize(
        "body",
        [
            '{"name": "twice", "schema": {}, "location": "/tmp/theirs", "location": null}',
            '{"name": "kept", "name": "../theirs"}',
            '{"name": ',
            "[1,",
            "\x00",
        ],
    )
    def test_with_ambiguous_or_broken_json_is_refused(self, door: Door, body: str) -> None:
        status, said = door.ask("POST", "/v1/namespaces/ours/tables", body)
        assert (status, said["error"]["type"]) == (400, "BadRequestException")


class TestToken:
    @pytest.mark.parametrize("token", ["", "wrong", "None"])
    def test_that_is_missing_or_wrong_is_refused_with_where_to_find_it(self, door: Door, token: str) -> None:
        for method, path, body in (
            ("GET", "/v1/config", None),
            ("POST", "/v1/namespaces", {"namespace": ["theirs"]}),
            ("POST", "/v1/oauth/tokens", None),
            ("GET", "/nowhere", None),
        ):
            sent = {} if token else {"Authorization": ""}
            status, said = door.ask(method, path, body, token=token, **sent)
            assert (status, said["error"]["type"]) == (401, "NotAuthorizedException")
            assert ".lakehouse/catalog.json" in said["error"]["message"]
            assert door.note.token not in str(said)
        assert door.ask("GET", "/v1/config", Authorization=door.note.token)[0] == 401
        with pytest.raises(UnauthorizedError, match=r"asks for its token.*catalog serve"):
            load_catalog("lake", type="rest", uri=door.note.uri)

    def test_is_in_one_file_that_only_its_owner_can_read(self, door: Door) -> None:
        """It is not in the list of processes, not in a log and not in a repr."""
        folder = door.warehouse / ".lakehouse"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "catalog.json").stat().st_mode) == 0o600
        assert door.note.token not in repr(door.note)
        assert len(door.note.token) >= 32
        secret = door.note.token.encode()
        assert [file.name for file in door.warehouse.rglob("*") if file.is_file() and secret in file.read_bytes()] == [
            "catalog.json"
        ]
        assert door.catalog.java
        for process in (os.getpid(), door.catalog.java):
            assert arguments(process)
            assert secret not in arguments(process)

    def test_is_in_a_file_that_is_private_from_its_first_byte(self, tmp_path: Path) -> None:
        """With any umask, and with any file that a killed process has left there."""
        claim = EmbeddedCatalog(tmp_path).claim
        claim.note.parent.mkdir()
        claim.note.with_suffix(".new").write_text("left")
        claim.note.with_suffix(".new").chmod(0o666)
        before = os.umask(0)
        try:
            claim.write(Note("http://127.0.0.1:1", 1, os.getpid(), 1, token="t0ken"))
        finally:
            os.umask(before)
        assert stat.S_IMODE(claim.note.stat().st_mode) == 0o600
        assert claim.token() == "t0ken"
        claim.note.chmod(0o640)
        assert claim.token() not in ("", "t0ken"), "others could read that"

    def test_survives_a_restart_and_is_found_by_our_clients(self, tmp_path: Path, jars_folder: Path | None) -> None:
        settings = CatalogSettings(path=tmp_path)
        with EmbeddedCatalog(tmp_path, port=0, jars=jars_folder) as first:
            uri = known(first)
            reader = client(uri)
            load_catalog("lake", **reader).create_namespace("kept")
        assert embedded_token(settings, uri) == "", "what listens at the port now may be a stranger"
        with EmbeddedCatalog(tmp_path, jars=jars_folder) as second:
            assert load_catalog("lake", **reader).list_namespaces() == [("kept",)]
            for way in (uri, f"{uri}/", uri.replace(LOOPBACK, "localhost")):
                assert embedded_token(settings, way) == second.token_of(uri) == reader["token"]
                assert not PipelineTables(connection_of(settings, S3Settings(), way), "ours").find("kept.t")
            for other in ("http://elsewhere.example", uri.replace("http", "https"), f"{uri}0", f"{uri}@evil.example"):
                assert embedded_token(settings, other) == "", other

    def test_is_shown_nowhere_by_a_pipeline(
        self, broker: str, topic: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        """And both clients of the pipeline log in with it, without a warning."""
        create_topic(broker, topic)
        produce(broker, topic, [(None, b'{"n": 1}')])
        settings = settings_text(topic, broker, None, topic, every="1s")
        settings += 'level = "debug"\n[health]\nport = 0\n'
        with Pipelines(tmp_path, jars_folder) as pipelines:
            running = pipelines.start(settings, "--warehouse", str(tmp_path / "lake"))
            running.wait_for("batch_landed")
            note = EmbeddedCatalog(tmp_path / "lake").claim.read()
            assert note
            assert note.token
            for process in (running.pid, *running.family()):
                assert note.token.encode() not in arguments(process)
            page = running.wait_for("health_serves")["url"]
            shown = b"".join(urlopen(f"{page}{path}").read() for path in ("/", "/status.json", "/ready"))
            running.send(SIGTERM)
            assert running.wait() == 0, running.tail()
            assert note.token.encode() not in shown + running.log.read_bytes()
            assert running.last_words() == []
            assert [each for each in running.events() if each["level"] in ("warning", "error")] == []


class TestTable:
    def test_cannot_be_created_or_moved_outside_the_warehouse(self, door: Door) -> None:
        before, around = door.tables(), {*door.warehouse.parent.iterdir()}
        table = "/v1/namespaces/ours/tables/kept"
        for place in outside(door.warehouse):
            moved = {"action": "set-location", "location": place}
            for path, body in (
                ("/v1/namespaces/ours/tables", {"name": "new", "schema": SCHEMA, "location": place}),
                (
                    "/v1/namespaces/ours/tables",
                    {"name": "new", "schema": SCHEMA, "stage-create": True, "location": place},
                ),
                *(
                    ("/v1/namespaces/ours/tables", {"name": "new", "schema": SCHEMA, "properties": {key: place}})
                    for key in ("write.data.path", "write.metadata.path", "write.object-storage.path")
                ),
                ("/v1/namespaces/ours/register", {"name": "new", "metadata-location": place}),
                ("/v1/namespaces", {"namespace": ["new"], "properties": {"location": place}}),
                ("/v1/namespaces/ours/properties", {"updates": {"location": place}, "removals": []}),
                (table, {"requirements": [], "updates": [moved]}),
                (
                    table,
                    {
                        "requirements": [],
                        "updates": [{"action": "set-properties", "updates": {"write.metadata.path": place}}],
                    },
                ),
                (
                    "/v1/transactions/commit",
                    {
                        "table-changes": [
                            {
                                "identifier": {"namespace": ["ours"], "name": "kept"},
                                "requirements": [],
                                "updates": [moved],
                            }
                        ]
                    },
                ),
            ):
                status, said = door.ask("POST", path, body)
                assert status == 400, (place, path, said)
                assert "outside the warehouse" in said["error"]["message"], (place, path, said)
        assert door.tables() == before
        assert door.ask("GET", table)[1]["metadata"]["location"] == f"file://{door.warehouse}/ours/kept"
        assert {*door.warehouse.parent.iterdir()} == around

    @pytest.mark.parametrize("name", ["..", "../../theirs", ".", "a/../../..", "%2e%2e/x", "a\\..\\x"])
    def test_cannot_leave_the_warehouse_by_its_name(self, door: Door, name: str) -> None:
        before = {*door.warehouse.parent.iterdir()}
        assert door.make(name)[0] == 400
        assert door.ask("POST", "/v1/namespaces", {"namespace": [name]})[0] == 400
        assert door.ask("POST", "/v1/namespaces", {"namespace": ["a", name]})[0] == 400
        assert {*door.warehouse.parent.iterdir()} == before

    def test_may_be_anywhere_within_the_warehouse(self, door: Door) -> None:
        for number, place in enumerate(
            (
                f"file://{door.warehouse}/x",
                f"file:{door.warehouse}/y//z",
                f"{door.warehouse}/..hidden",
                f"file://{door.warehouse}/w/",
            )
        ):
            name = f"within_{number}"
            status, said = door.make(name, location=place, properties={"write.data.path": f"{place.rstrip('/')}/files"})
            assert status == 200, said
            assert door.ask("DELETE", f"/v1/namespaces/ours/tables/{name}")[0] == 204

    def test_may_be_in_the_old_and_in_the_new_warehouse(self, tmp_path: Path, jars_folder: Path | None) -> None:
        """A warehouse whose new tables go to another store keeps its old tables."""
        with EmbeddedCatalog(tmp_path, port=0, jars=jars_folder, place=PLACE) as catalog:
            door = Door(catalog)
            door.ask("POST", "/v1/namespaces", {"namespace": ["ours"]})
            assert door.make("old", location=f"file://{tmp_path}/ours/old")[0] == 200
            staged = {"stage-create": True}  # which writes nothing
            for place in (f"{PLACE}/ours/new", "S3A://lake/house//new/"):
                assert door.make("new", **staged, location=place)[0] == 200
            for place in ("s3://lake/houses", "s3://lake", f"{PLACE}/../theirs", "s3://lake.evil.example/house/t"):
                assert door.make("theirs", **staged, location=place)[0] == 400

    def test_that_is_already_elsewhere_is_read_and_written_to(self, tmp_path: Path, jars_folder: Path | None) -> None:
        """For example because the catalog's own folder was moved."""
        first, second = tmp_path / "first", tmp_path / "second"
        with EmbeddedCatalog(first, port=0, jars=jars_folder) as catalog:
            lake = load_catalog("lake", **client(known(catalog)))
            lake.create_namespace("ours")
            lake.create_table("ours.t", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
        second.mkdir()
        (first / ".lakehouse").rename(second / ".lakehouse")
        with EmbeddedCatalog(second, port=0, jars=jars_folder) as catalog:
            table = load_catalog("lake", **client(known(catalog))).load_table("ours.t")
            assert table.location() == f"file://{first}/ours/t"
            table.append(pa.table({"n": [2]}))
            assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2]
