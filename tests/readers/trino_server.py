"""Trino, fetched once and kept beside the jars: half a gigabyte, and a minute to start.

with running_trino(tmp_path, rest_uri, {}) as ask:
    names, rows = ask("SELECT count(*) FROM lake.iot.sensors")
"""

import importlib
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakehouse_ingest.environment import java
from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.environment.jars import cache_folder
from lakehouse_ingest.environment.jars.download import download
from lakehouse_ingest.environment.jars.lock import Jar
from tests.services.doors import token_at
from tests.services.engine import built
from tests.services.pipelines import until

VERSION = "476"
OLDEST_JAVA = 24
# The smallest Trino that reads Iceberg: its server, and one plugin.
LOCK = (
    Jar(
        f"io/trino/trino-server-core/{VERSION}/trino-server-core-{VERSION}.tar.gz",
        "0f388f9967c177ae70a47c099082fc95387f0c3cb96d8000d1d41fc3a5223158",
        194_358_953,
    ),
    Jar(
        f"io/trino/trino-iceberg/{VERSION}/trino-iceberg-{VERSION}.zip",
        "99edba5b491ed94d599aeb61e0794272d3569d8b563f3bb8569e8a49daa87b6c",
        345_890_737,
    ),
)
DEFINED = Path(__file__).parents[2] / "deploy" / "trino" / "etc" / "catalog"
STARTING = 300.0
Ask = Callable[[str], tuple[list[str], list[Any]]]
OPTIONS = (
    "-Xmx1G",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=256M",
    "-Djdk.attach.allowAttachSelf=true",
    "--add-modules=jdk.incubator.vector",
    "-Dfile.encoding=UTF-8",
)


def fetched() -> Path:
    """The server's folder in the cache, with the one plugin that reads Iceberg."""
    return built(cache_folder() / "engines" / f"trino-{VERSION}", _fetch)


def _fetch(fresh: Path) -> Path:
    print(f"Fetching Trino {VERSION} into {fresh.parent} (540 MB)")
    (fresh / "got").mkdir()
    for _ in download("Trino", LOCK, fresh / "got"):
        pass
    with tarfile.open(fresh / "got" / f"trino-server-core-{VERSION}.tar.gz") as packed:
        packed.extractall(fresh, filter="data")
    with zipfile.ZipFile(fresh / "got" / f"trino-iceberg-{VERSION}.zip") as plugin:
        plugin.extractall(fresh)
    server = fresh / f"trino-server-core-{VERSION}"
    (fresh / f"trino-iceberg-{VERSION}").rename(server / "plugin" / "iceberg")
    return server


def java_for_trino() -> Path:
    found = {each: java.version(each) for each in java._candidates(os.environ, java.USUAL)}
    for each, release in found.items():
        if release and release >= OLDEST_JAVA:
            return each
    raise AssertionError(
        f"Trino {VERSION} needs Java {OLDEST_JAVA} or later, found only {[*found.values()]}: put one into /usr/lib/jvm"
    )


@contextmanager
def running_trino(folder: Path, uri: str, files: Mapping[str, str]) -> Iterator[Ask]:
    """The way to ask it; `lake` is our catalog, on S3 if there are properties of one."""
    client: Any = importlib.import_module("trino.dbapi")  # installed by `make readers`
    port = any_free_port()
    home = _configured(folder, port, "lake" if files else "lake_on_local_files")
    environment = {
        **os.environ,
        "LAKEHOUSE_CATALOG": uri,
        "LAKEHOUSE_CATALOG_TOKEN": token_at(uri),
        "S3_ENDPOINT": files.get("s3.endpoint", ""),
        "S3_REGION": files.get("client.region", ""),
        "S3_ACCESS_KEY": files.get("s3.access-key-id", ""),
        "S3_SECRET_KEY": files.get("s3.secret-access-key", ""),
    }
    log = folder / "server.log"
    command = [
        str(java_for_trino()),
        *OPTIONS,
        f"-Dnode.data-dir={folder / 'data'}",
        f"-Dconfig={home}/config.properties",
    ]
    server = fetched()
    command += ["-cp", f"{server}/lib/*", "io.trino.server.TrinoServer"]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
        )
    try:
        started = until(lambda: b"SERVER STARTED" in log.read_bytes() or process.poll() is not None, STARTING, 0.5)
        assert started, f"Trino did not start in time: {log}"
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        connection = client.connect(host=LOOPBACK, port=port, user="tests", catalog="lake", timezone="UTC")
        yield lambda sql: _asked(connection.cursor(), sql)
    finally:
        process.kill()
        process.wait(30)


def _asked(cursor: Any, sql: str) -> tuple[list[str], list[Any]]:
    """One that has just started knows none who could do it, not even itself, for a second or two."""
    deadline = time.monotonic() + STARTING
    while True:
        try:
            rows = cursor.execute(sql).fetchall()
            return [each[0] for each in cursor.description], rows
        except Exception as failure:
            if getattr(failure, "error_name", "") != "NO_NODES_AVAILABLE" or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _configured(folder: Path, port: int, catalog: str) -> Path:
    """Its folder of settings: the catalog is the file that we ship, to the byte."""
    home = folder / "etc"
    (home / "catalog").mkdir(parents=True)
    shutil.copy(DEFINED / f"{catalog}.properties", home / "catalog" / "lake.properties")
    (home / "config.properties").write_text(
        "coordinator=true\n"
        "node-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\n"
        f"node.bind-ip={LOOPBACK}\nnode.internal-address={LOOPBACK}\nnode.environment=tests\n"
        f"discovery.uri=http://{LOOPBACK}:{port}\n"
        "query.max-memory-per-node=400MB\n"
        f"plugin.dir={fetched() / 'plugin'}\n"
        f"catalog.config-dir={home / 'catalog'}\n"
    )
    (home / "log.properties").write_text("io.trino=WARN\n")
    return home
