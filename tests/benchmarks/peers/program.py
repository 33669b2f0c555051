"""A peer while it runs: a process of its own, and where it leaves the events."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM

from tests.benchmarks.peers.targets import Target
from tests.benchmarks.systems import Commit, Surroundings, Written
from tests.services.pipelines import Running

LOG = "log.txt"
STOPPING = 20.0
LAST_WORDS = 15  # lines


class Program:
    """`fatal` is a line of its log after which it will not go on, though its process lives."""

    def __init__(
        self,
        command: Sequence[str | Path],
        here: Surroundings,
        target: Target,
        count: int,
        environment: Mapping[str, str] | None = None,
        fatal: str = "",
    ) -> None:
        self._target, self._count, self._fatal = target, count, fatal
        # What a system that is killed leaves behind goes with the folder of its run.
        scratch = here.folder / "tmp"
        scratch.mkdir()
        java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={scratch}"
        environment = {**os.environ, "TMPDIR": str(scratch), "JAVA_TOOL_OPTIONS": java, **(environment or {})}
        self._running = Running([*map(str, command)], environment, here.folder / LOG)

    @property
    def pid(self) -> int:
        return self._running.pid

    def rows(self) -> int:
        has_ended = self._running.ended  # looked at before the rows, so that the last ones are not missed
        found = self._target.rows()
        if found < self._count and (has_ended or self._is_broken()):
            raise RuntimeError(f"It ended with {found} of {self._count} events:\n{self._running.tail(LAST_WORDS)}")
        return found

    def written(self) -> Written:
        return self._target.written()

    def commits(self) -> Sequence[Commit]:
        return self._target.commits()

    def stop(self) -> None:
        if not self._running.ended:
            self._running.send(SIGTERM)
            with suppress(AssertionError):  # it does not end by itself
                self._running.wait(STOPPING)
        self._running.end()

    def check(self) -> None:
        self._target.check(self._count)

    def _is_broken(self) -> bool:
        return bool(self._fatal) and self._fatal in self._running.log.read_text(errors="replace")
