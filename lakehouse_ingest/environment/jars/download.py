"""Downloads locked files: several at a time, resumed where a connection broke, and compared with their checksums.

Versions and checksums are locked, so there is nothing to resolve, and neither Ivy nor Java is needed. A file appears
under its name once its checksum is right. What is complete stays when another file fails.

The package `pooch` would do this with fewer lines here, but it loads one file at a time and begins again after a cut.
"""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO

from tenacity import Retrying, retry_if_exception_type, sleep_using_event, stop_after_attempt, wait_exponential

from lakehouse_ingest.environment.jars.lock import Jar
from lakehouse_ingest.environment.jars.repository import MIRROR, ConnectionCut, NotServed, Read, mirror, repository
from lakehouse_ingest.errors import TryAgain

AT_A_TIME = 4
ATTEMPTS = 5
PAUSE_S = 0.5  # before the second attempt; doubled before each further one
REPORT_EVERY_S = 0.2
BY_HAND = "name a folder of `jars bundle` in LAKEHOUSE_INGEST_JARS"


@dataclass(frozen=True)
class Received:
    """How much has come so far; `file` has just been completed, if any has."""

    size: int
    file: str = ""


def download(what: str, jars: Sequence[Jar], into: Path) -> Iterator[Received]:
    """Downloads the jars into a folder. `what` names them in an error."""
    stop = Event()
    with repository() as read, ThreadPoolExecutor(AT_A_TIME, "jars") as pool:
        transfers = [Transfer(jar, into, read, stop) for jar in jars]
        running = {pool.submit(transfer.run): transfer for transfer in transfers}
        try:
            while running:
                for ended in wait(running, REPORT_EVERY_S, FIRST_COMPLETED).done:
                    file = running.pop(ended).jar.name
                    ended.result()
                    yield Received(sum(each.received for each in transfers), file)
                yield Received(sum(each.received for each in transfers))
        except ChecksumWrong as wrong:
            raise TryAgain(
                f"Of the downloaded {what} jars {wrong} has a wrong checksum, so it is not used: something on the way"
                f" changed it, or the repository holds another file; run again, or {BY_HAND}"
            ) from None
        except (ConnectionCut, NotServed) as failure:
            place = f"the repository in {MIRROR}" if mirror() else "the network"
            raise TryAgain(
                f"The {what} jars could not be downloaded ({failure}); check {place} and run again, or {BY_HAND}"
            ) from failure
        finally:
            stop.set()  # after a failure or Ctrl-C the other threads are not to go on
            pool.shutdown(wait=False, cancel_futures=True)


class ChecksumWrong(Exception):
    """Names the file."""


class Transfer:
    """One file on its way. What has come so far outlives a cut connection."""

    def __init__(self, jar: Jar, into: Path, read: Read, stop: Event) -> None:
        self.jar, self.received = jar, 0
        self._into, self._read, self._stop = into, read, stop
        self._digest = hashlib.sha256()

    def run(self) -> None:
        part = self._into / f"{self.jar.name}.part"
        retrying = Retrying(
            retry=retry_if_exception_type(ConnectionCut),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(PAUSE_S),
            sleep=sleep_using_event(self._stop),
            reraise=True,
        )
        try:
            with part.open("wb") as file:
                retrying(self._receive, file)
        except (ConnectionCut, NotServed) as failure:
            raise type(failure)(f"{self.jar.name}: {failure}") from failure
        # One that is too long was not read to its end, which may not exist.
        if self.received > self.jar.size or self._digest.hexdigest() != self.jar.sha256:
            part.unlink()
            raise ChecksumWrong(self.jar.name)
        part.rename(self._into / self.jar.name)

    def _receive(self, file: IO[bytes]) -> None:
        with closing(self._read(self.jar.path, self.received)) as chunks:
            while self.received <= self.jar.size and not self._stop.is_set() and (chunk := next(chunks, b"")):
                file.write(chunk)
                self._digest.update(chunk)
                self.received += len(chunk)
        if self._stop.is_set():
            raise NotServed("another file failed")
        if self.received < self.jar.size:
            raise ConnectionCut(f"the connection ended after {self.received} of {self.jar.size} bytes")
