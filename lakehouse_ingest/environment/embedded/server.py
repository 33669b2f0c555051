"""The life of an embedded server: claim a folder, find a port, start a JVM, build in it, ask it, note it."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from py4j.protocol import Py4JError

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, Claim, Note, alive, choose_port
from lakehouse_ingest.environment.embedded.jvm import Jvm
from lakehouse_ingest.environment.jars import ensure

HEALTH_SECONDS = 30.0


class Server(ABC):
    """Serves a folder from `start` to `stop`, or to this process's death."""

    kind: ClassVar[str]  # of jars, and how it is called in sentences
    usual_port: ClassVar[int]
    asks_for_token: ClassVar[bool] = False

    def __init__(self, folder: Path, port: int | None, jars: Path | None) -> None:
        self.folder, self.log = folder, folder / f"{self.kind}.log"
        self._port, self._jars = port, jars
        self.claim = Claim(folder, f"{self.kind}.json", self._refusal)
        self._jvm: Jvm | None = None

    def start(self, *, passing: bool = False) -> str:
        """Returns its address once it answers there; `passing`: who comes meanwhile may wait for the end."""
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
                    # Somebody took the port while Java started; unless it was asked for, there are others.
                    if last or self._port or "already in use" not in str(failure):
                        raise failure from error
                    self._jvm.stop()
            self.claim.write(note)
        except BaseException:
            self.stop()
            raise
        return note.uri

    def stop(self) -> None:
        """Twice is once; returns when its process is gone."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.stop()
        self.claim.release()

    @property
    def uri(self) -> str | None:
        """Where it was served the last time, or is now."""
        note = self.claim.read()
        return note.uri if note else None

    def token_of(self, uri: str) -> str:
        """What lets in to it at this address; nothing where it isn't served there, or lets in all."""
        note = self.claim.read()
        # Once its JVM has ended the port may be another user's, who must not learn it.
        if note is None or not (alive(note.java) and self.claim.is_at(note.port)):
            return ""
        return note.token if uri.rstrip("/") in (note.uri, note.uri.replace(LOOPBACK, "localhost")) else ""

    @property
    def served(self) -> str | None:
        """Where it answers now, whoever serves it."""
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
        """What to tell the one who comes second."""

    @abstractmethod
    def _address(self, port: int) -> str: ...

    @abstractmethod
    def _java(self, files: Sequence[Path], lock: int) -> Jvm:
        """A JVM that inherits the lock."""

    @abstractmethod
    def _build(self, jvm: Jvm, note: Note) -> None:
        """Starts the server inside the JVM, as the note has it."""

    @abstractmethod
    def _ask(self, note: Note) -> None:
        """One question that only a healthy server answers; OSError if it doesn't."""

    def _wait_until_healthy(self, note: Note) -> None:
        deadline = time.monotonic() + HEALTH_SECONDS
        while True:
            try:
                return self._ask(note)
            except OSError:
                if time.monotonic() > deadline or not self.running:
                    raise
            time.sleep(0.05)
