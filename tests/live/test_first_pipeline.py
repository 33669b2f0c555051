"""A reader who follows the README or the first guide word for word gets a table, and sees what the page shows.

Only the addresses differ. A line of the page that is `…` stands for any lines of the output.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from tests.services.pages import FENCED, ROOT, Page

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

README = Page(ROOT / "README.md")
GUIDE = Page(ROOT / "docs" / "get-started" / "your-first-pipeline.md")
PATIENCE_S = 180.0
COLUMNS = 110  # of the terminal
BROKER, CATALOG = "localhost:9092", "http://localhost:8181"
OF_OURS = re.compile(r"LAKEHOUSE_INGEST_(?!JARS$)")
SAVED = re.compile(r"[Ss]ave\s+this\s+as\s+`([\w.-]+)`")
ENDS = {"plan": {0, 7}}  # verb: exit codes that are none of a failure
# What differs from run to run and from machine to machine, each with what stands for it.
VARIES = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*Z?", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DAY"),
    (r"(?:https?://)?(?:127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"(?:file:(?://)?)?(?:/[\w.=+-]+){2,}/?", "PATH"),
    (r"\bcluster [\w-]{22}", "cluster ID"),
    (r"\bpid=\d+", "pid=N"),
    (r"\bJava \d+", "Java N"),
    (r"\b[\d.,]+ ?\w+ ago\b", "AGO"),
    (r"\b\d+(?:\.\d+)?(?= s\b)", "N"),
    (r"\b(duration_s|freshness_s)=[\d.]+", r"\1=N"),
    (r"\b[\d.]+ KiB", "SIZE"),
    (r"\s+", " "),
)


def plain(line: str) -> str:
    for pattern, instead in VARIES:
        line = re.sub(pattern, instead, line)
    return line.strip()


class Walk:
    """A reader with an empty folder, who types what a page shows."""

    def __init__(self, page: Page, folder: Path, instead: dict[str, str]) -> None:
        self.page, self.folder, self._instead = page, folder, dict(instead)
        self.differs: list[str] = []  # all of a page at once, so that one run is enough to set it right
        self.environment = {key: value for key, value in os.environ.items() if not OF_OURS.match(key)}
        self.environment |= {"COLUMNS": str(COLUMNS), "TERM": "xterm"}

    def go(self) -> list[str]:
        """All of the page from above to below; the commands that were typed."""
        typed: list[str] = []
        saved = "pipeline.toml"
        with ExitStack() as background:
            for found in FENCED.finditer(self.page.text):
                language, body = found.groups()
                if named := SAVED.findall(self.page.text[: found.start()]):
                    saved = named[-1]
                if (language, Path(saved).suffix) in {("python", ".py"), ("toml", ".toml")}:
                    (self.folder / saved).write_text(self._ours(body))
                for command, shown in _commands(body) if language == "console" else ():
                    if command.startswith("make "):
                        continue
                    typed.append(command)
                    if "catalog serve" in command:
                        background.enter_context(self._serving(command))
                        continue
                    if command.startswith("lakehouse-ingest"):
                        background.close()
                    self._type(command, shown)
        assert not self.differs, "\n".join(self.differs)
        return typed

    def _ours(self, text: str) -> str:
        for theirs, ours in self._instead.items():
            text = text.replace(theirs, ours)
        return text

    def _words(self, command: str) -> list[str]:
        words = shlex.split(self._ours(command), comments=True)
        ours = {"lakehouse-ingest": [sys.executable, "-m", "lakehouse_ingest"], "python": [sys.executable]}
        return [*ours[words[0]], *words[1:]]

    def _type(self, command: str, shown: list[str]) -> None:
        code, said = _on_a_terminal(self._words(command), self.folder, self.environment)
        assert code in ENDS.get(command.split()[1], {0}), said
        printed = iter([plain(line) for line in said.splitlines()])
        missing = [line for line in shown if line != "…" and plain(line) not in printed]
        if missing:
            self.differs.append(f"{self.page.name} shows of `{command}`: {missing[0]}\nbut that printed:\n{said}")

    @contextmanager
    def _serving(self, command: str) -> Iterator[None]:
        """In another terminal; the address and the token that it prints are those that are typed from now on."""
        process = subprocess.Popen(
            self._words(command), cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = ""
        try:
            while "Ctrl-C ends it" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            ((uri, token),) = re.findall(r'uri="(\S+)", token="(\S+)"', said)
            self._instead |= {"http://127.0.0.1:8181": uri, "TOKEN": token}
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def _on_a_terminal(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, COLUMNS))
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        said = b""
        with suppress(OSError):  # its end
            while some := os.read(ours, 65536):
                said += some
        os.close(ours)
        return running.wait(PATIENCE_S), _lines(said.decode())


def _lines(said: str) -> str:
    """Without colours, and with a line of its own for each state of one that is drawn again and again."""
    said = re.sub(r"\x1b\[\d*[AGJK]|\r", "\n", said.replace("\r\n", "\n"))
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)


def _commands(body: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console with what it prints."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        yield command, [line for line in printed if line.strip()]


@pytest.fixture
def a_broker(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[str]:
    """One that has seen nothing yet."""
    kafka = EmbeddedBroker(tmp_path_factory.mktemp("own_broker"), port=0, jars=jars_folder)
    try:
        yield kafka.start()
    finally:
        kafka.stop()


class TestFirstGuide:
    def test_leads_to_a_table(self, a_broker: str, tmp_path: Path) -> None:
        typed = Walk(GUIDE, tmp_path, {BROKER: a_broker}).go()
        verbs = [command.split()[1] for command in typed if command.startswith("lakehouse-ingest")]
        assert verbs == [
            "--version",
            "check",
            "plan",
            "run",
            "catalog",
            "verify",
            "status",
            "run",
            "verify",
            "settings",
            "settings",
        ]


class TestReadme:
    def test_leads_to_a_table(self, a_broker: str, tmp_path: Path, jars_folder: Path | None) -> None:
        """With the records of the guide, and a catalog of which only address and token are known."""
        (send,) = (block for block in GUIDE.blocks("python") if "Producer" in block)
        subprocess.run([sys.executable, "-c", send, a_broker], check=True, timeout=60)
        catalog = EmbeddedCatalog(tmp_path / "warehouse", port=0, jars=jars_folder)
        try:
            uri = catalog.start()
            here = tmp_path / "here"
            here.mkdir()
            (here / "catalog-token").write_text(catalog.token_of(uri))
            typed = Walk(README, here, {BROKER: a_broker, CATALOG: uri}).go()
        finally:
            catalog.stop()
        assert [command.split()[1] for command in typed] == ["check", "plan", "run", "verify"]
