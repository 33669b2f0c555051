"""Gives the offsets of batches to the process in which Spark plans the query.

Spark asks a Python source for offsets in a process of its own, which knows nothing of ours and may be started again. So
our process decides, and that one asks. A batch begins where the one before ended, or at the start of the query. Until
the batch has finished, whoever asks gets the same end again.

The two speak over a Unix socket in a folder that only our user may open: one JSON object a line, a question and its
answer.

    {"ask": "initial"}    {"offsets": {"sensors": {"0": 5}}}
    {"ask": "latest"}     {"offsets": {"sensors": {"0": 9}}}
    anything else         {"failed": "a sentence"}
"""

import json
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from tempfile import mkdtemp
from threading import Lock, Thread
from typing import Any, Self

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Offsets, Range

PATIENCE_S = 1.0  # after so long, the answer is that there is nothing new
ANSWER_S = 60.0  # after so long without an answer, our process is taken to be gone
LONGEST_QUESTION = 1_000  # bytes
LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; a million partitions have less
LONGEST_PATH = 100  # bytes; the system takes a few more for the path of a socket

NextEnd = Callable[[Offsets], Offsets]
ByTopic = dict[str, dict[str, int]]


def by_topic(offsets: Offsets) -> ByTopic:
    """The offsets as Spark keeps them. Equal offsets give equal text, because Spark compares the text."""
    found: ByTopic = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


class OffsetServer:
    """Owns the offsets of one query.

    `next_end` gets the offsets at which the next batch begins, and returns those at which it ends. It may wait until
    there is something to read, or return the same offsets. It is called in a thread of its own, by one at a time.
    """

    def __init__(self, start: Offsets, next_end: NextEnd, patience_s: float = PATIENCE_S) -> None:
        self.failure: BaseException | None = None  # what `next_end` raised; it ends the query
        self._start: Offsets = dict(start)  # of the query
        self._done: Offsets = self._start  # what has finished
        self._told: Offsets = self._start  # the last answer
        self._next_end, self._patience_s = next_end, patience_s
        self._finished = 0  # batches
        self._asked: Future[Offsets] | None = None
        self._is_closed = False
        self._lock = Lock()
        self._folder = _private_folder()
        self.address = str(self._folder / "offsets")
        self._server = _OffsetSocket(self.address, self._answer)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, number: int) -> Range:
        """The offsets of Spark's batch of that number. They are empty if Spark runs a batch without need.

        Raises if Spark runs another batch than the next one: its offsets would not follow on those before.
        """
        with self._lock:
            if number != self._finished:
                raise TryAgain(
                    f"Spark runs batch {number} of a query that has finished {self._finished}; the stream starts again"
                )
            return Range({at: self._done.get(at, 0) for at in self._told}, dict(self._told))

    def finish(self, number: int) -> None:
        """The batch is complete. The next one begins at its end."""
        self.batch(number)
        with self._lock:
            self._done = self._told
            self._finished += 1

    def close(self) -> None:
        """Answer nobody any more. What waits in `next_end` has to be released by the caller."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- answers --------------------------------------------------------------------------------------------

    def _answer(self, question: bytes) -> bytes:
        offsets = {_line({"ask": "initial"}): lambda: self._start, _line({"ask": "latest"}): self._latest}.get(question)
        if offsets is None:
            return _line({"failed": "this is no question of the process that plans the query"})
        try:
            return _line({"offsets": by_topic(offsets())})
        except BaseException as failure:  # noqa: BLE001 - our process gets the error itself, and the other one its text
            self.failure = self.failure or failure
            return _line({"failed": f"{type(failure).__name__}: {failure}"})

    def _latest(self) -> Offsets:
        """The end of the batch that was planned last, or of the next one if that has finished."""
        with self._lock:
            if self._told != self._done or self._is_closed:
                return self._told
            before = self._done
            asked = self._asked = self._asked or self._ask(before)
        wait([asked], self._patience_s)
        with self._lock:
            if asked is self._asked and asked.done():
                self._asked = None
                self._told = _following(before, asked.result())
            return self._told

    def _ask(self, start: Offsets) -> "Future[Offsets]":
        """Call `next_end`. A thread that waits in it does not keep the process from ending."""
        future: Future[Offsets] = Future()

        def call() -> None:
            try:
                future.set_result(self._next_end(dict(start)))
            except BaseException as failure:  # noqa: BLE001 - who waits for the result raises it
                future.set_exception(failure)

        Thread(target=call, daemon=True).start()
        return future


class OffsetQuestions:
    """The other side: asks a server of another process. A connection that is lost is made again, once a question."""

    def __init__(self, address: str, answer_s: float = ANSWER_S) -> None:
        self._address, self._answer_s = address, answer_s
        self._socket: socket.socket | None = None

    def initial(self) -> ByTopic:
        return self._offsets("initial")

    def latest(self) -> ByTopic:
        return self._offsets("latest")

    def close(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = None

    def _offsets(self, asked: str) -> ByTopic:
        question = _line({"ask": asked})
        was_open = self._socket is not None
        try:
            answer = self._ask(question)
        except ConnectionError:
            if not was_open:
                raise
            answer = self._ask(question)
        found: dict[str, Any] = json.loads(answer)
        if "failed" in found:
            raise RuntimeError(found["failed"])
        offsets: ByTopic = found["offsets"]
        return offsets

    def _ask(self, question: bytes) -> bytes:
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(self._answer_s)
                self._socket.connect(self._address)
            self._socket.sendall(question)
            with self._socket.makefile("rb") as lines:
                answer = lines.readline(LONGEST_ANSWER)
            if not answer.endswith(b"\n"):
                raise ConnectionResetError("the process that owns the offsets has closed the connection")
        except OSError:
            self.close()
            raise
        return answer


class _OffsetSocket(ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False  # a question may wait for its answer

    def __init__(self, address: str, answer: Callable[[bytes], bytes]) -> None:
        super().__init__(address, _Conversation)
        self.answer = answer
        self.connections: set[socket.socket] = set()

    def hang_up(self) -> None:
        for connection in self.connections.copy():
            with suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)


class _Conversation(StreamRequestHandler):
    server: _OffsetSocket

    def handle(self) -> None:
        self.server.connections.add(self.connection)
        try:
            while (question := self.rfile.readline(LONGEST_QUESTION)).endswith(b"\n"):
                self.wfile.write(self.server.answer(question))
        except OSError:  # nobody waits for the answer any more
            return
        finally:
            self.server.connections.discard(self.connection)


def _following(start: Offsets, end: Offsets) -> Offsets:
    """The end. Raises if a partition is missing or goes back: Spark would read committed records again."""
    if wrong := [at for at, offset in start.items() if end.get(at, -1) < offset]:
        topic, number = min(wrong)
        raise TryAgain(
            f"a batch was planned that goes back in topic {topic} partition {number}, from offset"
            f" {start[topic, number]} to {end.get((topic, number), 'none')}; the stream starts again"
        )
    return dict(end)


def _private_folder() -> Path:
    """A folder for the socket. Its path has to be short, so it can't be one of ours below a long path."""
    folder = Path(mkdtemp(prefix="lakehouse-offsets-"))
    if len(bytes(folder)) > LONGEST_PATH - len("/offsets"):
        folder.rmdir()
        folder = Path(mkdtemp(prefix="lakehouse-offsets-", dir="/tmp"))
    return folder


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"
