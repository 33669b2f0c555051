"""What Spark calls with each batch, let go of when its query has ended.

py4j keeps a function until Java's collector meets what stands for it there, and the thread and the connection by which
it was called until Java closes it, which nobody does: each start would add clients of brokers and open files.
"""

from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Batch = Callable[[DataFrame, int], None]


class Callback:
    def __init__(self, spark: SparkSession, do: Batch) -> None:
        self._client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # noqa: SLF001
        self._do: Batch | None = do
        self._connection: Any = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._connection = self._client.get_thread_connection()
        if self._do:
            self._do(rows, number)

    def let_go(self) -> None:
        """Nothing more is called, and the thread that did ends."""
        self._do = None
        connection, self._connection = self._connection, None
        # One that Python has opened is that of a thread of ours.
        if connection is not None and connection.socket is not None and not connection.initiated_from_client:
            with suppress(OSError):
                connection.socket.shutdown(SHUT_RDWR)
