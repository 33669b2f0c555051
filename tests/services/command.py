"""`lakehouse-ingest` with some words, in this process: its exit code and what it said."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from unittest import mock

import pytest

from lakehouse_ingest import cli


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
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, environment: Mapping[str, str] | None = None) -> Said:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("LAKEHOUSE_INGEST_")}
        cli.LOADED.set(None)
        cli.DEBUG.set(False)
        self._capsys.readouterr()
        with (
            mock.patch.dict(os.environ, {**ours, **(environment or {})}, clear=True),
            mock.patch.object(sys, "argv", ["lakehouse-ingest", *map(str, words)]),
        ):
            code = 0
            try:
                cli.main()
            except SystemExit as end:
                code = int(end.code or 0)
        captured = self._capsys.readouterr()
        return Said(code, captured.out, captured.err)
