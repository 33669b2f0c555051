"""An Iceberg REST catalog over a warehouse folder: Iceberg's own REST adapter over a JdbcCatalog on SQLite.

For one machine: loopback only, no credentials, and a commit of several tables at once is not atomic under a
crash. What has to survive is `<warehouse>/.lakehouse/catalog.db` and the tables' own files; pyiceberg's
SqlCatalog and Spark's JdbcCatalog can read the same file under the same catalog name.
"""

import http.client
from collections.abc import Sequence
from pathlib import Path

from lakehouse_ingest.embedded.claim import LOOPBACK
from lakehouse_ingest.embedded.jvm import SPARK_JARS, Jvm
from lakehouse_ingest.embedded.server import Server

CATALOG_NAME = "rest_backend"
JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.hadoop=error",
    # These would log eighty lines for every refused commit; the answer to the client says it all.
    "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.util.Tasks=error",
    "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.rest.RESTCatalogServlet=off",
)


class EmbeddedCatalog(Server):
    """A commit that was answered is in SQLite: `stop` and SIGKILL lose none."""

    kind, usual_port = "catalog", 8181

    def __init__(self, warehouse: Path, port: int | None = None, *, jars: Path | None = None) -> None:
        """Port None: that of the last time, else 8181 or the next free one; 0: any. `jars`: see `ensure`."""
        self.warehouse = warehouse.absolute()
        super().__init__(self.warehouse / ".lakehouse", port, jars)

    def _refusal(self, holder: str) -> str:
        return (
            f"The warehouse {self.warehouse} is already served by {holder}: "
            "use that catalog with --catalog-uri URI instead of starting a second one."
        )

    def _address(self, port: int) -> str:
        return f"http://{LOOPBACK}:{port}"

    def _java(self, files: Sequence[Path], lock: int) -> Jvm:
        hadoop = sorted(SPARK_JARS.glob("hadoop-client-*.jar"))
        return Jvm("catalog", [*files, *hadoop], JAVA_OPTIONS, self.log, lock)

    def _build(self, jvm: Jvm, port: int) -> None:
        java = jvm.classes
        backend = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            CATALOG_NAME,
            {
                "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "jdbc.schema-version": "V1",
                "uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
                # Readers don't wait for a writer, and two writers wait for each other instead of failing.
                "jdbc.journal_mode": "WAL",
                "jdbc.busy_timeout": "30000",
                "warehouse": f"file://{self.warehouse}",
            },
            java.org.apache.hadoop.conf.Configuration(),
        )
        rest, servlets = java.org.apache.iceberg.rest, java.org.eclipse.jetty.ee10.servlet
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(backend))
        handler = servlets.ServletContextHandler()
        handler.addServlet(servlets.ServletHolder(servlet), "/*")
        server = java.org.eclipse.jetty.server.Server()
        connector = java.org.eclipse.jetty.server.ServerConnector(server)
        connector.setHost(LOOPBACK)
        connector.setPort(port)
        server.addConnector(connector)
        server.setHandler(handler)
        server.start()

    def _ask(self, port: int) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
        try:
            connection.request("GET", "/v1/config")
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(f"GET /v1/config: {error!r}") from error
        finally:
            connection.close()
        if status != http.HTTPStatus.OK:
            raise ConnectionError(f"GET /v1/config answers {status}")
