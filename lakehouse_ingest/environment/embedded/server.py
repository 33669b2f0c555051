"""The life of an embedded server: claim a folder, find a port, start a JVM and the server in it, write a note."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from py4j.protocol import Py4JError

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, FolderClaim, Note, alive, choose_port
from lakehouse_ingest.environment.embedded.jvm import STOP_SECONDS, Jvm
from lakehouse_ingest.environment.jars import ensure

HEALTH_SECONDS = 30.0


class Server(ABC):
    """Serves a folder from `start` to `stop`, or until this process ends."""

    kind: ClassVar[str]  # of jars, and its name in sentences
    usual_port: ClassVar[int]
    asks_for_token: ClassVar[bool] = False
    java_options: Sequence[str] = ()  # beyond its own

    def __init__(self, folder: Path, port: int | None, jars: Path | None) -> None:
        self.folder, self.log = folder, folder / f"{self.kind}.log"
        self._port, self._jars = port, jars
        self.claim = FolderClaim(folder, f"{self.kind}.json", self._refusal)
        self._jvm: Jvm | None = None

    def start(self, *, passing: bool = False) -> str:
        """Returns its address once it answers. `passing`: it ends soon, so a process that comes meanwhile may wait."""
        files = ensure(self.kind, folder=self._jars)
        lock = self.claim.take()
        try:
            token = self.claim.token() if self.asks_for_token else ""
            for last in (False, False, True):
                port = choose_port(self._port, self.claim.read(), self.usual_port)
                self._jvm = self._java(files, lock)
                note = Note(self._address(port), port, os.getpid(), self._jvm.pid, passing, token)
                try:
                    self._build(self._jvm, note)
                    self._wait_until_healthy(note)
                    break
                except (Py4JError, OSError) as error:
                    failure = self._jvm.failed(error)
                    # Another process took the port while Java started. Unless a setting names it, another will do.
                    if last or self._port or "already in use" not in str(failure):
                        raise failure from error
                    self._jvm.stop()
            self.claim.write(note)
        except BaseException:
            self.stop()
            raise
        return note.uri

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Returns when its process is gone, which has so many seconds to end. A second call does nothing."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.stop(seconds)
        self.claim.release()

    @property
    def uri(self) -> str | None:
        """Its address now, or when it was last served."""
        note = self.claim.read()
        return note.uri if note else None

    def token_of(self, uri: str) -> str:
        """The token for this address; empty where it is not served there, or needs none."""
        note = self.claim.read()
        # Once its JVM has ended the port may belong to another user, who must not learn the token.
        if note is None or not (alive(note.java) and self.claim.is_at(note.port)):
            return ""
        return note.token if uri.rstrip("/") in (note.uri, note.uri.replace(LOOPBACK, "localhost")) else ""

    @property
    def served(self) -> str | None:
        """The address at which it answers now, whichever process serves it."""
        note = self.claim.read()
        if note is None or not (alive(note.pid) and self.claim.is_at(note.port)):
            return None
        try:
            self._ask(note)
        except OSError:
            return None
        return note.uri

    @property
    def running(self) -> bool:
        return self._jvm is not None and self._jvm.running

    @property
    def java(self) -> int | None:
        """The process id of its JVM."""
        return self._jvm.pid if self._jvm is not None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _refusal(self, holder: str) -> str:
        """The sentence for a second process."""

    @abstractmethod
    def _address(self, port: int) -> str: ...

    @abstractmethod
    def _java(self, files: Sequence[Path], lock: int) -> Jvm:
        """A JVM that inherits the lock."""

    @abstractmethod
    def _build(self, jvm: Jvm, note: Note) -> None:
        """Starts the server inside the JVM, with the note's port and token."""

    @abstractmethod
    def _ask(self, note: Note) -> None:
        """Sends a request that only a healthy server answers; OSError where it does not."""

    def _wait_until_healthy(self, note: Note) -> None:
        deadline = time.monotonic() + HEALTH_SECONDS
        while True:
            try:
                return self._ask(note)
            except OSError:
                if time.monotonic() > deadline or not self.running:
                    raise
            time.sleep(0.05)
