"""The function that Spark calls with each batch, released when its query has ended.

py4j keeps a Python function until Java collects the proxy of it. It keeps the calling thread and connection until Java
closes them, which never happens. So each start would leak broker clients and open files. An error would leak as well:
pyspark keeps it with the function, and the error keeps every frame that it passed.
"""

from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakehouse_ingest.environment.spark_internals import callback_client
from lakehouse_ingest.environment.spark_session import close_catalog

Batch = Callable[[DataFrame, int], None]


class BatchFailed(Exception):
    """Makes Spark end its query. The function itself has kept the original error."""


class Callback:
    """Calls a function with each batch, until `let_go`."""

    def __init__(self, spark: SparkSession, do: Batch) -> None:
        self._client = callback_client(spark)
        self._do: Batch | None = do
        self._connection: Any = None
        self._session: SparkSession | None = None  # the session of the query

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._connection = self._client.get_thread_connection()
        self._session = rows.sparkSession
        failed = ""
        try:
            if self._do:
                self._do(rows, number)
        except Exception as failure:  # noqa: BLE001 - the function keeps the error, and Spark gets its text
            failed = f"{type(failure).__qualname__}: {failure}"
        # Raised outside the `except`, where Python would attach the original error to this one.
        if failed:
            raise BatchFailed(failed)

    def let_go(self) -> None:
        """Call nothing more. End the thread that made the calls, and close the query's catalog client."""
        self._do = None
        session, self._session = self._session, None
        if session is not None:
            close_catalog(session)
        connection, self._connection = self._connection, None
        # A connection that Python opened belongs to one of our own threads.
        if connection is not None and connection.socket is not None and not connection.initiated_from_client:
            with suppress(OSError):
                connection.socket.shutdown(SHUT_RDWR)
