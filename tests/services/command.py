"""`lakehouse-ingest` with some words: its exit code and what it said."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from unittest import mock

import pytest

from lakehouse_ingest.cli import app, options
from tests.services.pipelines import JAVA_OPTIONS

PATIENCE = 120.0


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one that a refusal is."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("lakehouse-ingest: ")]
        return line.removeprefix("lakehouse-ingest: ")


class Command:
    """In this process, which is quick; what starts a Spark takes one of its own, as there may be one here already."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, environment: Mapping[str, str] | None = None) -> Said:
        wanted = _environment(environment)
        options.LOADED.set(None)
        app.DEBUG.set(False)
        self._capsys.readouterr()
        with (
            mock.patch.dict(os.environ, wanted, clear=True),
            mock.patch.object(sys, "argv", ["lakehouse-ingest", *map(str, words)]),
        ):
            code = 0
            try:
                app.main()
            except SystemExit as end:
                code = int(end.code or 0)
        captured = self._capsys.readouterr()
        return Said(code, captured.out, captured.err)

    def apart(self, *words: object, environment: Mapping[str, str] | None = None) -> Said:
        ended = subprocess.run(
            [sys.executable, "-m", "lakehouse_ingest", *map(str, words)],
            env={**_environment(environment), "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Said(ended.returncode, ended.stdout, ended.stderr)


def on_a_terminal(*words: object) -> tuple[int, bytes]:
    """The command as a person starts it: its exit code, and what the terminal got."""
    ours, theirs = pty.openpty()
    environment = {**_environment(None), "TERM": "xterm", "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
    command = [sys.executable, "-m", "lakehouse_ingest", *map(str, words)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        got = b""
        with suppress(OSError):  # its end
            while some := os.read(ours, 4096):
                got += some
        os.close(ours)
        return running.wait(PATIENCE), got


def _environment(changes: Mapping[str, str] | None) -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("LAKEHOUSE_INGEST_")}
    return {**ours, **(changes or {})}
