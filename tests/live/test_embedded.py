"""The embedded servers keep their data, say which process serves, and never outlive the process that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest
from pyiceberg.catalog import load_catalog

from lakehouse_ingest.environment.class_archive import archive, prepare
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.claim import Note, alive, free
from lakehouse_ingest.environment.embedded.server import Server
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from tests.services.doors import client, known
from tests.services.kafka import consume, create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
SERVERS = (EmbeddedCatalog, EmbeddedBroker)
PATIENCE_S = 60.0
CHILD = """
import signal, sys
from pathlib import Path
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
kind, folder, jars = sys.argv[1:]
serve = {"catalog": EmbeddedCatalog, "broker": EmbeddedBroker}[kind]
server = serve(Path(folder), 0, jars=Path(jars) if jars else None)
server.start()
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(server.java, flush=True)
while True:
    signal.pause()
"""


@contextmanager
def child(kind: str, folder: Path, jars: Path | None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another Python that serves a folder, in a process group of its own; and the process id of its JVM."""
    command = [sys.executable, "-c", CHILD, kind, str(folder), str(jars or "")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def noted(server: Server) -> Note:
    note = server.claim.read()
    assert note is not None
    return note


class TestEmbeddedServer:
    @pytest.mark.parametrize("serve", SERVERS)
    def test_takes_its_classes_from_their_archive(
        self, serve: type[EmbeddedCatalog | EmbeddedBroker], tmp_path: Path, jars_folder: Path | None
    ) -> None:
        java = find_java()
        prepare(java)  # now that the jars are there
        with serve(tmp_path, 0, jars=jars_folder) as server:
            kept = archive(java, kind=server.kind)
            assert str(kept) in Path(f"/proc/{server.java}/maps").read_text()

    @pytest.mark.parametrize("server", SERVERS)
    def test_that_is_started_twice_names_the_process_that_serves(
        self, server: type[EmbeddedCatalog | EmbeddedBroker], tmp_path: Path, jars_folder: Path | None
    ) -> None:
        with child(server.kind, tmp_path, jars_folder) as (process, _):
            second = server(tmp_path, jars=jars_folder)
            told = f"{tmp_path}.* is already served by process {process.pid} at "
            with pytest.raises(SettingsRefused, match=told) as refused:
                second.start()
            assert noted(second).uri in str(refused.value)
            assert {"catalog": "--catalog-uri", "broker": "--brokers"}[server.kind] in str(refused.value)

    @pytest.mark.parametrize("server", SERVERS)
    def test_of_a_killed_parent_is_replaced_by_the_next_one(
        self, server: type[EmbeddedCatalog | EmbeddedBroker], tmp_path: Path, jars_folder: Path | None
    ) -> None:
        with child(server.kind, tmp_path, jars_folder) as (process, java):
            left = noted(server(tmp_path))
            assert left.java == java
            process.kill()
            process.wait()
            with server(tmp_path, jars=jars_folder) as next_one:
                assert next_one.uri == left.uri
                assert not alive(java)

    @pytest.mark.parametrize("server", SERVERS)
    def test_of_a_killed_parent_ends_by_itself(
        self, server: type[EmbeddedCatalog | EmbeddedBroker], tmp_path: Path, jars_folder: Path | None
    ) -> None:
        with child(server.kind, tmp_path, jars_folder) as (process, java):
            port = noted(server(tmp_path)).port
            assert not free(port)
            process.kill()
            assert until(lambda: not alive(java) and free(port), PATIENCE_S)

    @pytest.mark.parametrize("server", SERVERS)
    def test_is_not_reached_by_ctrl_c_in_the_terminal(
        self, server: type[EmbeddedCatalog | EmbeddedBroker], tmp_path: Path, jars_folder: Path | None
    ) -> None:
        with child(server.kind, tmp_path, jars_folder) as (process, java):
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout is not None
            assert process.stdout.readline() == "interrupted\n"
            assert not until(lambda: not alive(java), seconds=1)
            same = server(tmp_path)
            same._ask(noted(same))  # raises when nobody answers


class TestEmbeddedCatalog:
    def test_keeps_its_tables_and_its_port(self, tmp_path: Path, jars_folder: Path | None) -> None:
        warehouse = tmp_path / "a warehouse of an Übung"
        first = EmbeddedCatalog(warehouse, port=0, jars=jars_folder)
        first.start()
        uri = known(first)
        load_catalog("lake", **client(uri)).create_namespace("kept")
        first.stop()
        assert not first.running
        with EmbeddedCatalog(warehouse, jars=jars_folder) as second:
            assert second.uri == uri
            assert load_catalog("lake", **client(known(second))).list_namespaces() == [("kept",)]

    def test_waits_for_a_command_that_only_looks(self, tmp_path: Path, jars_folder: Path | None) -> None:
        """A pipeline that is started while `status` runs starts."""
        first, second = (EmbeddedCatalog(tmp_path, jars=jars_folder) for _ in range(2))
        first.start(passing=True)
        look = Timer(1.0, first.stop)
        look.start()
        with second:
            assert not look.is_alive()
            assert second.served == second.uri

    def test_names_a_port_that_is_taken(self, tmp_path: Path, jars_folder: Path | None) -> None:
        with EmbeddedCatalog(tmp_path / "one", port=0, jars=jars_folder) as first:
            port = noted(first).port
            with pytest.raises(SettingsRefused, match=f"Port {port} of 127.0.0.1 is taken"):
                EmbeddedCatalog(tmp_path / "two", port, jars=jars_folder).start()

    def test_names_a_broken_database_and_its_log_in_one_sentence(
        self, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        catalog = EmbeddedCatalog(tmp_path, port=0, jars=jars_folder)
        catalog.folder.mkdir()
        (catalog.folder / "catalog.db").write_text("not a database, but long enough to be looked at as one" * 100)
        told = r"The embedded catalog did not start: .*not a database.* \(its log: .*\)\."
        with pytest.raises(TryAgain, match=told) as error:
            catalog.start()
        assert "\n" not in str(error.value)
        assert not catalog.running

    @pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
    def test_that_a_command_serves_ends_with_0_on_a_signal(self, stop: signal.Signals, tmp_path: Path) -> None:
        words = ["catalog", "serve", "--warehouse", str(tmp_path), "--port", "0"]
        command = [sys.executable, "-m", "lakehouse_ingest", *words]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            first = serving.stdout.readline()
            left = noted(EmbeddedCatalog(tmp_path))
            assert left.uri in first
            second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert (second.returncode, second.stderr.count("\n")) == (2, 1)
            serving.send_signal(stop)
            assert serving.wait(PATIENCE_S) == 0
            assert not alive(left.java)


class TestEmbeddedBroker:
    def test_keeps_its_records_and_its_port(self, tmp_path: Path, jars_folder: Path | None) -> None:
        """In a folder with any name, and nowhere else."""
        folder = tmp_path / "a broker of an Übung 𝄞"
        first = EmbeddedBroker(folder, port=0, jars=jars_folder)
        servers = first.start()
        create_topic(servers, "kept", partitions=2)
        produce(servers, "kept", ((None, str(number).encode()) for number in range(100)))
        first.stop()
        assert (folder / "data" / "kept-0").is_dir()
        assert {*tmp_path.iterdir()} == {folder}
        with EmbeddedBroker(folder, jars=jars_folder) as second:
            assert second.uri == servers
            produce(servers, "kept", [(b"key", b"100", [("name", b"header")], 1_700_000_000_000, 1)])
            found = consume(servers, "kept", 101)
        assert sorted(int(message.value() or b"") for message in found) == list(range(101))
        last = next(message for message in found if message.key() == b"key")
        assert (last.partition(), last.headers()) == (1, [("name", b"header")])
        assert last.timestamp()[1] == 1_700_000_000_000

    def test_that_is_killed_loses_no_acknowledged_record(self, tmp_path: Path, jars_folder: Path | None) -> None:
        first = EmbeddedBroker(tmp_path, port=0, jars=jars_folder)
        servers = first.start()
        create_topic(servers, "kept")
        produce(servers, "kept", ((None, b"x" * 200) for _ in range(20_000)))
        os.kill(noted(first).java, signal.SIGKILL)
        assert until(lambda: not first.running, PATIENCE_S)
        first.stop()
        with EmbeddedBroker(tmp_path, jars=jars_folder) as second:
            assert second.uri == servers
            assert len(consume(servers, "kept", 20_000)) == 20_000
