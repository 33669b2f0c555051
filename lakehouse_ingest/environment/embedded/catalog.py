"""An Iceberg REST catalog over a warehouse folder: Iceberg's own REST adapter over a JdbcCatalog on SQLite.

It is for one machine and one user: loopback only, behind a token, and closed to web pages (see `Door.java`). A commit
of several tables at once is not atomic under a crash. What has to be kept is `<warehouse>/.lakehouse/catalog.db` and
the tables' own files. pyiceberg's SqlCatalog and Spark's JdbcCatalog can read that file under the same catalog name.

The tables' files may be in another store instead (see `storage`), while the catalog's own file stays in the folder.
"""

import http.client
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, Note
from lakehouse_ingest.environment.embedded.jvm import SPARK_JARS, Jvm
from lakehouse_ingest.environment.embedded.server import Server
from lakehouse_ingest.environment.proxies import java_properties, set_system_properties
from lakehouse_ingest.environment.storage import Storage
from lakehouse_ingest.errors import SettingsRefused

CATALOG_NAME = "rest_backend"
OWN = ".lakehouse"  # the catalog's folder, within that of the warehouse
IDLE_MS = 600_000
OF_SPARK = ("hadoop-client", "janino", "commons-compiler")  # of its jars
DOOR = files("lakehouse_ingest").joinpath("environment", "embedded", "Door.java")
FILE_IO = "org.apache.iceberg.io.ResolvingFileIO"
JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.hadoop=error",
    # These would log eighty lines for every refused commit; the answer to the client has the reason.
    "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.util.Tasks=error",
    "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.rest.RESTCatalogServlet=off",
)


def is_warehouse(folder: Path) -> bool:
    """Whether a catalog has ever been served there. A command that only looks changes no other folder."""
    return (folder / OWN).is_dir()


class EmbeddedCatalog(Server):
    """A commit that was answered is in SQLite: neither `stop` nor SIGKILL loses it."""

    kind, usual_port, asks_for_token = "catalog", 8181, True

    def __init__(
        self,
        warehouse: Path,
        port: int | None = None,
        *,
        jars: Path | None = None,
        place: str | None = None,
        store: Storage | None = None,
    ) -> None:
        """Port None: the last one, else 8181 or the next free one; 0: any. `jars`: see `ensure`.

        `place` is where the tables' files go, absent: the folder itself. `store` is the store of that place.
        """
        if place and not re.match(r"[\w+.-]+://[^/\s]", place):
            raise SettingsRefused(
                f"`catalog.warehouse` should be an s3:// place, or absent, without a `catalog.uri`, not {place[:60]}."
            )
        # The catalog compares the places of its tables, and a path with `..` has more than one meaning.
        self.warehouse = warehouse.resolve() if ".." in warehouse.parts else warehouse.absolute()
        self.place = place or f"file://{self.warehouse}"
        self._store = store
        super().__init__(self.warehouse / OWN, port, jars)

    def _refusal(self, holder: str) -> str:
        return (
            f"The warehouse {self.warehouse} is already served by {holder}: "
            "use that catalog with --catalog-uri URI instead of starting a second one."
        )

    def _address(self, port: int) -> str:
        return f"http://{LOOPBACK}:{port}"

    def _java(self, files: Sequence[Path], lock: int) -> Jvm:
        spark = [jar for name in OF_SPARK for jar in sorted(SPARK_JARS.glob(f"{name}-*.jar"))]
        more = self._store.jars(self._jars) if self._store else []
        return Jvm("catalog", [*files, *spark, *more], (*JAVA_OPTIONS, *self.java_options), self.log, lock)

    def _build(self, jvm: Jvm, note: Note) -> None:
        java = jvm.classes
        store = self._store
        if store:
            set_system_properties(java, java_properties(self.folder))
            self._try_to_write(java, store)
        backend = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            CATALOG_NAME,
            {
                "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "jdbc.schema-version": "V1",
                "uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
                # Readers do not wait for a writer, and two writers wait for each other instead of failing.
                "jdbc.journal_mode": "WAL",
                "jdbc.busy_timeout": "30000",
                # Chosen by each file's address: where the place of new tables has changed, old ones stay readable.
                "io-impl": FILE_IO,
                "warehouse": self.place,
                **({**store.properties(), **store.of_embedded()} if store else {}),
            },
            java.org.apache.hadoop.conf.Configuration(),
        )
        rest, servlets = java.org.apache.iceberg.rest, java.org.eclipse.jetty.ee10.servlet
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(backend))
        handler = servlets.ServletContextHandler()
        handler.addServlet(servlets.ServletHolder(servlet), "/*")
        handler.addFilter(self._door(java, note.token), "/*", None)
        server = java.org.eclipse.jetty.server.Server()
        connector = java.org.eclipse.jetty.server.ServerConnector(server)
        connector.setHost(LOOPBACK)
        connector.setPort(note.port)
        # Clients keep connections between batches; one that is closed just as it is used costs a retry.
        connector.setIdleTimeout(IDLE_MS)
        server.addConnector(connector)
        server.setHandler(handler)
        server.start()

    def _door(self, java: Any, token: str) -> Any:
        """Compiled at each start: a class file would have to be built and shipped for each version of Java."""
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.cook(DOOR.read_text(encoding="utf-8"))
        door = compiler.getClassLoader().loadClass("Door").newInstance()
        holder = java.org.eclipse.jetty.ee10.servlet.FilterHolder(door)
        holder.setInitParameter("token", token)
        # Tables that were made in the folder, before the place was set, are still there.
        holder.setInitParameter("places", "\n".join({f"file://{self.warehouse}", self.place}))
        return holder

    def _try_to_write(self, java: Any, store: Storage) -> None:
        """At the start a wrong key is one sentence; later it would be a failed commit."""
        properties = {**store.properties(), **store.of_embedded(at_once=True)}
        files = java.org.apache.iceberg.CatalogUtil.loadFileIO(
            FILE_IO, properties, java.org.apache.hadoop.conf.Configuration()
        )
        probe = f"{self.place.rstrip('/')}/.lakehouse-{os.getpid()}"
        try:
            files.newOutputFile(probe).createOrOverwrite().close()
            files.deleteFile(probe)
        except Py4JJavaError as failure:
            raise store.explained(failure.java_exception, self.place) from failure
        finally:
            files.close()

    def _ask(self, note: Note) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, note.port, timeout=10)
        try:
            connection.request("GET", "/v1/config", headers={"Authorization": f"Bearer {note.token}"})
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(f"GET /v1/config: {error!r}") from error
        finally:
            connection.close()
        if status != http.HTTPStatus.OK:
            raise ConnectionError(f"GET /v1/config answers {status}")
