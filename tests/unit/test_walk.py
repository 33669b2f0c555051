"""The walk of a record in the architecture page is the one that a record takes."""

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

import catalog
from tests.services.memory import FileCatalog
from tests.services.mortal_worlds import World, event
from tests.services.pages import ROOT

PAGE = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
# Only Spark calls these, and only Kafka's reader: here tasks run in this process, and the topic is a list.
ELSEWHERE = {"OneStart._run", "OnSpark.write", "KafkaReader.read_all", "record_batch"}
Function = tuple[str, str]  # its file, and its name with its class


@dataclass(frozen=True)
class Walk:
    """One list of the page, and the counts in the sentence before it."""

    steps: Sequence[Function]
    functions: int
    files: int

    @property
    def seen_here(self) -> list[Function]:
        return [each for each in self.steps if each[1] not in ELSEWHERE]


def walks() -> list[Walk]:
    section = PAGE.partition("\n## The walk of a record\n")[2].partition("\n## ")[0]
    counts = re.findall(r"passes (\d+) (?:functions|more,) in (\d+) (?:files|other files)", " ".join(section.split()))
    lists = re.findall(r"(?:^\d+\. .*\n)+", section, re.MULTILINE)
    found = []
    for text, (functions, files) in zip(lists, counts, strict=True):
        lines = re.findall(r"^\d+\. `(.+?)`: (.+)$", text, re.MULTILINE)
        steps = [(_file(path), name) for path, names in lines for name in re.findall(r"`([\w.]+)`", names)]
        found.append(Walk(steps, int(functions), int(files)))
    return found


def _file(path: str) -> str:
    return path if path.startswith("catalog/") else f"lakehouse_ingest/{path}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    there = FileCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    monkeypatch.setattr(catalog, "connect", lambda _, settled: catalog.CatalogClient(there, settled))
    return World(there, tmp_path)


@contextmanager
def following() -> Iterator[dict[Function, None]]:
    """The functions that are called, also by threads that begin meanwhile, in the order of their first calls."""
    found: dict[Function, None] = {}

    def call(frame: FrameType, happened: str, _: object) -> None:
        path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if happened == "call" and path.startswith(("lakehouse_ingest/", "catalog/")):
            found[path, frame.f_code.co_qualname] = None

    threading.setprofile(call)
    sys.setprofile(call)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class TestWalkOfARecord:
    def test_is_the_one_that_the_page_lists(self, world: World) -> None:
        of_known, of_new = walks()
        with following() as called:
            world.start()
            for walk in (of_new, of_known):
                called.clear()
                world.topic.produce([event("known", n=1)])
                world.land()
                assert [each for each in called if each in walk.steps] == walk.seen_here
        assert not {*of_new.steps} & {*called}, "steps of a new table, which a known one takes as well"

    def test_has_the_length_that_the_page_says(self) -> None:
        of_known, of_new = walks()
        files = {path for path, _ in of_known.steps}
        assert (of_known.functions, of_known.files) == (len({*of_known.steps}), len(files))
        more = {*of_new.steps} - {*of_known.steps}
        assert (of_new.functions, of_new.files) == (len(more), len({path for path, _ in more} - files))

    def test_names_functions_that_exist(self) -> None:
        for path, name in (each for walk in walks() for each in walk.steps):
            text = (ROOT / path).read_text(encoding="utf-8")
            for part in name.split("."):
                assert re.search(rf"^ *(?:class|def) {part}\b", text, re.MULTILINE), f"{path}: {name}"
