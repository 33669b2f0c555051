"""`lakehouse-ingest check`: whether `run` would work, a line for each thing that has to be in order."""

from functools import partial
from pathlib import Path

from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import LONGEST, fitted
from lakehouse_ingest.operations import check as checks
from lakehouse_ingest.pipeline.assembly import refuse_early
from lakehouse_ingest.settings import Loaded, Settings


def check(
    settings: Settings, loaded: Loaded | None = None, *, jars: Path | None = None, allow_code: bool = False
) -> int:
    """The exit code: that of the first thing that is not in order."""
    console, code = Terminal(soft_wrap=True), 0
    for line in checks.check(settings, partial(refuse_early, settings, allow_code=allow_code), jars):
        console.print(_shown(line, loaded))
        code = code or (line.failure.exit_code if line.failure else 0)
    return code


def _shown(line: checks.CheckLine, loaded: Loaded | None) -> Text:
    mark, says = ("ok", "green"), line.says
    if line.failure:
        sentence = str(line.failure)
        mark, says = ("no", "red"), fitted(loaded.explained(sentence) if loaded else sentence, LONGEST - 14)
    return Text.assemble(mark, "  ", (f"{line.name:<10}", "bold"), says)
