"""The pages that people read, and what is in them: blocks, commands, links, tests."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
IN_LINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"\b(tests/[\w/]*\w(?:\.py)?)((?:::\w+)*)")
# What a shell takes for the end of a command; behind it another one may begin.
BETWEEN = {"&&", "||", "|", ";", "&"}
ASSIGNED = re.compile(r"[A-Z_][A-Z0-9_]*=")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def in_line(self) -> list[str]:
        return [" ".join(each.split()) for each in IN_LINE.findall(FENCED.sub("", self.text))]

    def blocks(self, language: str) -> list[str]:
        return [body for kind, body in FENCED.findall(self.text) if kind == language]

    @property
    def links(self) -> list[str]:
        """Those to other places of this repository."""
        found = LINK.findall(FENCED.sub("", self.text))
        return [each for each in found if not re.match(r"[a-z]+:", each)]

    @property
    def tests(self) -> list[tuple[str, list[str]]]:
        """Files and folders of tests that it names, each with the classes and functions behind it."""
        return [(path, names.split("::")[1:]) for path, names in TEST.findall(self.text)]

    def commands(self, program: str) -> Iterator[list[str]]:
        """The words behind a program's name, wherever the page shows one of its commands."""
        shown = [line for block in self.blocks("console") for line in _typed(block)]
        for line in [*shown, *(each for each in self.in_line if program in each)]:
            for words in _parts(line):
                if words and words[0] == program:
                    yield words[1:]


def pages() -> list[Page]:
    """README, its neighbours, and all of `docs`."""
    return [Page(path) for path in (*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md")))]


def _typed(block: str) -> list[str]:
    """The lines of a console that a person types."""
    return [line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]


def _parts(line: str) -> Iterator[list[str]]:
    """The commands of a line, without the variables that are set for them and without remarks."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # text that is no command, such as one with an apostrophe
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if word in BETWEEN or word.endswith(";"):
            yield [*command, *([word[:-1]] if word[:-1] and word not in BETWEEN else [])]
            command = []
        elif command or not ASSIGNED.match(word):
            command.append(word)
