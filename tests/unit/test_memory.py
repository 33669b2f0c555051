"""Rule 14: what a task may hold is bounded over all tables, and the sum of all tasks is checked at the start."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from catalog import CatalogClient, FileWriter, create_table, ensure_namespace, table_files
from lakehouse_ingest.environment import machine
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.observe.events import MemoryShort
from lakehouse_ingest.observe.watch import Event, Watch
from lakehouse_ingest.pipeline import task
from lakehouse_ingest.pipeline.memory import DRIVER, MIB, PER_TASK, bytes_of, refuse_too_little
from lakehouse_ingest.pipeline.task import RouteWork, Work, do
from lakehouse_ingest.schema import table_plans
from lakehouse_ingest.schema.table_plans import plan_from_seen
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Records, Share
from lakehouse_ingest.stages.routing import Route
from telemetry import OFF

TYPES, CHUNKS, CHUNK = 6, 12, 12


class Measured(FileWriter):
    """Tells what all writers of a task hold together."""

    there: ClassVar[list["Measured"]] = []

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.there.append(self)


@dataclass
class Watched:
    """A reader of records that are there already, which notes what the task holds whenever it asks for more."""

    waiting: list[int]
    open: list[int]

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        (share,) = shares
        for first in range(share.start, share.end, CHUNK):
            self.waiting.append(sum(each.waiting for each in Measured.there))
            self.open.append(sum(each.open_files for each in Measured.there))
            values = [json.dumps({"type": f"kind_{n % TYPES}", "n": n}).encode() for n in range(first, first + CHUNK)]
            columns: Mapping[str, Any] = {
                "offset": range(first, first + CHUNK),
                "timestamp": [0] * CHUNK,
                "value": values,
            }
            rows = [pa.array(columns.get(each.name, [None] * CHUNK), each.type) for each in RECORD_SCHEMA]
            yield Records(share.topic, share.partition, "log", pa.RecordBatch.from_arrays(rows, schema=RECORD_SCHEMA))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """For as many tables as there are types, each with a partition for every record."""
    monkeypatch.setattr(task, "FileWriter", Measured)
    Measured.there.clear()
    client = CatalogClient(SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w"))
    ensure_namespace(client, "ns")
    columns = [{"name": "type", "type": "string"}, {"name": "n", "type": "long"}]
    table = {"table": "{type}", "columns": columns, "partition_by": ["n"]}
    stream = {"topics": ["t"], "type_from": "field:type", "tables": [table]}
    settings = Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0]
    routes = {}
    for number in range(TYPES):
        name = f"ns.kind_{number}"
        plan = plan_from_seen(name, settings.tables[0], {}).plan
        create_table(client, table_plans.spec(plan, settings.tables[0]))
        routes[Route(0, "", f"kind_{number}")] = RouteWork(RoutePlan(plan), table_files(client, name))
    return Work("plant", 1, 0, settings, cast("Any", Watched([], [])), routes, None)


def written(work: Work) -> Watched:
    receipt = do(work, 0, 0, [Share("t", 0, 0, CHUNKS * CHUNK)])
    assert receipt.error is None
    assert not any(part.failure for part in receipt.parts.values())
    rows = sum(file.record_count for part in receipt.parts.values() for file in part.files)
    assert rows == CHUNKS * CHUNK, "every row is in one file"
    return cast("Watched", work.reader)


class TestTask:
    def test_holds_few_rows_that_wait_however_many_tables_there_are(
        self, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        free = written(work)
        most = max(free.waiting) // 4
        monkeypatch.setattr(task, "MOST_WAITING", most)
        Measured.there.clear()
        bound = written(replace(work, reader=cast("Any", Watched([], []))))
        assert 0 < max(bound.waiting) <= most

    def test_holds_few_files_open_however_many_tables_there_are(
        self, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "MOST_WAITING", 0)
        free = written(work)
        most = max(free.open) // 4
        monkeypatch.setattr(task, "MOST_OPEN", most)
        Measured.there.clear()
        bound = written(replace(work, reader=cast("Any", Watched([], []))))
        assert 0 < max(bound.open) <= most


@dataclass
class Told:
    watch: Watch
    events: list[Event]


@pytest.fixture
def told() -> Told:
    watch, events = Watch("plant", OFF), list[Event]()
    watch.add_listener(events.append)
    return Told(watch, events)


class TestStart:
    @pytest.mark.parametrize("tasks", [1, 2, 16])
    def test_says_that_all_tasks_together_may_need_more_than_there_is(self, told: Told, tasks: int) -> None:
        enough = bytes_of("1g") + DRIVER + tasks * PER_TASK
        refuse_too_little(told.watch, "1g", tasks, enough)
        assert told.events == []
        refuse_too_little(told.watch, "1g", tasks, enough - MIB)
        (event,) = told.events
        assert isinstance(event, MemoryShort)
        assert event.tasks == tasks
        assert f"local[{max(1, tasks - 1)}]" in event.advice

    def test_refuses_a_heap_that_is_larger_than_all_there_is(self, told: Told) -> None:
        with pytest.raises(SettingsRefused, match=r"`spark\.memory` is 8g, and this machine or container has 4\.0 GiB"):
            refuse_too_little(told.watch, "8g", 2, 4 * 2**30)

    @pytest.mark.parametrize(
        ("text", "size"),
        [("1g", 2**30), ("512m", 512 * MIB), ("2048", 2048 * MIB), ("1GB", 2**30), ("1t", 2**40), ("much", 0)],
    )
    def test_reads_sizes_as_spark_does(self, text: str, size: int) -> None:
        assert bytes_of(text) == size


class TestMachine:
    def memory(self, folder: Path, own: str, limits: Mapping[str, str]) -> int:
        for path, text in limits.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(f"{text}\n")
        (folder / "own").write_text(own)
        return machine.memory(folder, folder / "own")

    def test_has_what_is_there(self, tmp_path: Path) -> None:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert machine.memory(tmp_path, tmp_path / "none") == there
        assert self.memory(tmp_path, "0::/a\n", {"memory.max": "max", "a/memory.max": "max"}) == there

    @pytest.mark.parametrize(
        ("own", "limits"),
        [
            ("0::/\n", {"memory.max": "5"}),
            ("0::/a/b\n", {"a/memory.max": "5", "a/b/memory.max": "max"}),
            ("0::/a/b\n", {"a/memory.max": "7", "a/b/memory.max": "5"}),
            ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5"}),
            ("4:cpu,memory:/host/path\n", {"memory/memory.limit_in_bytes": "5"}),
        ],
        ids=["in a container", "of a group above", "of ours", "of the first version", "and in a container"],
    )
    def test_has_less_if_a_control_group_says_so(self, tmp_path: Path, own: str, limits: Mapping[str, str]) -> None:
        assert self.memory(tmp_path, own, limits) == 5
