"""What Spark calls with each batch, let go of when its query has ended.

py4j keeps a function until Java's collector meets what stands for it there, and the thread and the connection by which
it was called until Java closes it, which nobody does: each start would add clients of brokers and open files. So would
each error, which pyspark keeps with that function, and with it all that stood in the frames it went through.
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
    """What Spark ends its query for; why is in what the function itself has kept."""


class Callback:
    def __init__(self, spark: SparkSession, do: Batch) -> None:
        self._client = callback_client(spark)
        self._do: Batch | None = do
        self._connection: Any = None
        self._session: SparkSession | None = None  # the query's own

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._connection = self._client.get_thread_connection()
        self._session = rows.sparkSession
        failed = ""
        try:
            if self._do:
                self._do(rows, number)
        except Exception as failure:  # noqa: BLE001 - whoever is called keeps it for himself, and Spark is told
            failed = f"{type(failure).__qualname__}: {failure}"
        # Not where it was caught: there it would go along.
        if failed:
            raise BatchFailed(failed)

    def let_go(self) -> None:
        """Nothing more is called, and the thread that did ends, and the client of the catalog that the query had."""
        self._do = None
        session, self._session = self._session, None
        if session is not None:
            close_catalog(session)
        connection, self._connection = self._connection, None
        # One that Python has opened is that of a thread of ours.
        if connection is not None and connection.socket is not None and not connection.initiated_from_client:
            with suppress(OSError):
                connection.socket.shutdown(SHUT_RDWR)
