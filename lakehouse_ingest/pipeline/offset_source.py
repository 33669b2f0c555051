"""Lets Spark's streaming query follow offsets that this process decides.

Spark asks a data source for its newest offset, logs it, and then runs a batch up to there. It asks a Python data source
in a process of its own, which may be restarted at any time. So that process decides nothing: it asks us by a local
connection. The rows of the source are empty, because our own tasks read the records.
"""

import json
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from lakehouse_ingest.records import Offsets

FORMAT = "lakehouse_offsets"
START, END = "start", "end"
ANSWER_S = 60.0  # a source that does not answer in this time has raised, so only a process that is stuck takes longer
LONGEST = 4096  # bytes of a question


class OffsetServer:
    """Answers the questions of the planning process, from a thread of its own."""

    def __init__(self, start: Offsets, end: Callable[[], Offsets]) -> None:
        """`start` is where the query begins. `end` says where the next batch ends, and must not block for long."""
        self._answers: Mapping[str, Callable[[], Offsets]] = {START: lambda: start, END: end}
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()

    def __enter__(self) -> "OffsetServer":
        Thread(target=self._serve, name="offsets", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for each in [self._socket, *self._connections]:
            each.close()

    def frame(self, spark: SparkSession) -> DataFrame:
        """The source as a streaming frame."""
        spark.dataSource.register(OffsetSource)
        port = self._socket.getsockname()[1]
        return spark.readStream.format(FORMAT).options(port=str(port), token=self._token).load()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            self._connections.add(connection)
            Thread(target=self._answer, args=(connection,), name="offsets", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, KeyError), connection.makefile("rwb") as stream:
            while line := stream.readline(LONGEST):
                asked = json.loads(line)
                if not secrets.compare_digest(str(asked["token"]), self._token):
                    break
                stream.write(json.dumps(flat(self._answers[asked["ask"]]())).encode() + b"\n")
                stream.flush()
        self._connections.discard(connection)


class OffsetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "nothing string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        return OffsetReader(int(self.options["port"]), self.options["token"])


class OffsetReader(DataSourceStreamReader):
    """Lives in the planning process."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._stream: Any = None  # made there, because this object is pickled

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._asked(START)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._asked(END)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        return iter(())

    def _asked(self, what: str) -> dict[str, Any]:
        if self._stream is None:
            connection = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
            self._stream = connection.makefile("rwb")
        self._stream.write(json.dumps({"token": self._token, "ask": what}).encode() + b"\n")
        self._stream.flush()
        answer = self._stream.readline()
        if not answer:
            raise ConnectionError("the pipeline has ended, or has closed this query")
        found: dict[str, Any] = json.loads(answer)
        return found


def flat(offsets: Offsets) -> dict[str, int]:
    """Offsets as Spark's log takes them: it knows no objects in objects."""
    return {f"{topic}/{partition}": offset for (topic, partition), offset in sorted(offsets.items())}
