"""Servers of others: built once and kept beside the jars, each a process of its own, up when it answers.

class MinIO(Engine):
    def __init__(self, folder):
        super().__init__("MinIO", folder, [str(build()), "server"], {"MINIO_REGION": "eu"})
    def _is_ready(self): return answers(f"{self.endpoint}/minio/health/live")
"""

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock

from tests.services.pipelines import until

BUILDING = 1_800.0
STARTING, STOPPING = 120.0, 20.0
NOTHING: Mapping[str, str] = {}


def built(wanted: Path, make: Callable[[Path], Path]) -> Path:
    """`make` gets an empty folder, and says what in it is wanted; once, whoever asks at the same time."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    fresh = wanted.with_suffix(".new")
    with FileLock(wanted.with_suffix(".lock")):
        if not wanted.exists():
            shutil.rmtree(fresh, ignore_errors=True)  # of one that was killed
            fresh.mkdir()
            make(fresh).rename(wanted)
            shutil.rmtree(fresh)
    return wanted


def go(*words: str, folder: Path, **environment: str) -> None:
    subprocess.run(
        ["go", *words],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", **environment},
        capture_output=True,
        text=True,
        timeout=BUILDING,
        check=True,
    )


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Engine(ABC):
    def __init__(
        self, name: str, folder: Path, command: Sequence[str], environment: Mapping[str, str] = NOTHING
    ) -> None:
        self._name, self._log = name, folder / f"{name.lower()}.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def __enter__(self) -> Self:
        up = until(lambda: self._is_ready() or self._process.poll() is not None, STARTING)
        if not up or self._process.poll() is not None:
            self.stop()
            raise AssertionError(f"{self._name} did not start: {self._log.read_text(errors='replace')[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """By its own pid."""
        self._process.terminate()
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOPPING)
