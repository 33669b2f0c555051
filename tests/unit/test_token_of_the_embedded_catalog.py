"""The token of the embedded catalog goes to none but the catalog's own user, wherever a stranger may listen."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.claim import LOOPBACK, Note
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables.clients import connection_of, embedded_token, spark_properties

TOKEN = "t0ken" * 4
NOBODY = 65534
AS_NOBODY = """\
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def noted(folder: Path, port: int) -> str:
    """As a catalog leaves it that serves at this port; its processes live."""
    catalog = EmbeddedCatalog(folder)
    catalog.claim.note.parent.mkdir()
    uri = f"http://{LOOPBACK}:{port}"
    catalog.claim.write(Note(uri, port, os.getpid(), os.getpid(), token=TOKEN))
    return uri


@pytest.fixture
def port_of_another_user() -> Iterator[int]:
    if os.geteuid() != 0:
        pytest.skip("only root may listen as another user")
    command = [sys.executable, "-c", AS_NOBODY, str(NOBODY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.communicate()


class TestToken:
    def test_is_sent_where_our_own_catalog_listens(self, tmp_path: Path) -> None:
        with socket.create_server((LOOPBACK, 0)) as server:
            uri = noted(tmp_path, server.getsockname()[1])
            assert embedded_token(CatalogSettings(path=tmp_path), uri) == TOKEN
        assert embedded_token(CatalogSettings(path=tmp_path), uri) == "", "nobody listens there any more"

    def test_is_not_sent_to_another_user_on_the_port(self, tmp_path: Path, port_of_another_user: int) -> None:
        uri = noted(tmp_path, port_of_another_user)
        assert embedded_token(CatalogSettings(path=tmp_path), uri) == ""
        assert EmbeddedCatalog(tmp_path).served is None

    def test_is_not_sent_to_an_address_in_the_properties(self, tmp_path: Path) -> None:
        with socket.create_server((LOOPBACK, 0)) as server:
            uri = noted(tmp_path, server.getsockname()[1])
            settings = CatalogSettings(path=tmp_path, properties={"uri": "http://elsewhere.example"})
            for found in (
                spark_properties(settings, S3Settings(), uri),
                connection_of(settings, S3Settings(), uri).properties,
            ):
                assert found["uri"] == "http://elsewhere.example"
                assert TOKEN not in str(dict(found))
