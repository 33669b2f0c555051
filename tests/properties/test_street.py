"""The law of accounting on real tables: crashes anywhere, other batches and other settings lose and double nothing.

The topic is a list in memory and a crash an item of the story; the stages, their tasks and the tables are real. The
tasks run in this process, and the catalog is a file: this needs neither Spark nor a server.
"""

import json
import os
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import uuid4

import pyarrow as pa
import pytest
import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import catalog
from catalog import DataFileReceipt
from lakehouse_ingest.errors import BadRecord, TableChanged, TryAgain
from lakehouse_ingest.ledger.keys import TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.batch import BatchRunner
from lakehouse_ingest.pipeline.effects import Effects, RealWorld
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.pipeline.task import Receipt, Work, do
from lakehouse_ingest.records import Offsets, Range, Token
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.tables import (
    Connection,
    Evolution,
    Partition,
    PipelineTables,
    Plan,
    Position,
    Registered,
    TableSpec,
    TableState,
)
from lakehouse_ingest.tables.effects import Landing
from telemetry import OFF
from tests.services.memory import A_CHUNK, HOLE, TOPIC, FileCatalog, TablesReader, Topic
from tests.services.records import check_batch_record, kind_of
from tests.services.sqlite_catalog import kept_in
from tests.stages.given import Value

# An example takes a second or two: each is drawn from a seed, for small ones tell little; none is made smaller.
RARE = settings(
    max_examples=int(os.environ.get("LAKEHOUSE_TEST_STORIES", "15")),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)

RECORD, DEAD = "lakehouse_batches", "dead_letters"
ALL = 10**6
COUNTED = re.compile("have an outcome|receipts? covers?|were written for|not show")  # the law was broken within a batch
A_TASK = 7  # offsets, so that a batch has several tasks
A_LETTER = 200  # bytes
DRAINING = RunOptions(until_latest=True, accept_changes=True)
Done = TypeVar("Done")
Effect = tuple[str, str]  # what is done, and to which table


class Crash(BaseException):
    """The process dies here, and nothing that catches an `Exception` keeps it alive."""


# -- the story --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """Settings under which a record may have another fate than under others."""

    keep_types: str | None = None
    on_error: str = "log"
    together: bool = False  # an entry more, which takes two of the types into one table
    hints: Mapping[str, str] = field(default_factory=dict)
    max_tables: int = 100
    publish: str = "branch"


@dataclass(frozen=True)
class Land:
    """Records that are produced, and a batch of at most so many offsets of each partition."""

    values: Sequence[Value]
    most: int = ALL


@dataclass(frozen=True)
class Trouble:
    """What befalls the process before an effect, or after so many, all or of one kind; how the next start judges."""

    how: str
    before: Effect | None = None
    after: int = 0
    of: str = ""
    then: Judgement = Judgement()

    def is_due(self, effects: Sequence[Effect], coming: Effect) -> bool:
        if self.before:
            return coming == self.before
        alike = [verb for verb, _ in [*effects, coming] if self.of in ("", verb)]
        return self.of in ("", coming[0]) and len(alike) > self.after


CRASHES = "the process dies"
REFUSED = "this effect alone fails"
UNANSWERED = "it is done, and the answer is lost"


class MortalEffects:
    """Counts its effects; when trouble comes, a dead process has no more of them."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.hasty = False  # every task is done twice, as Spark may do it
        self.effects: list[Effect] = []
        self._trouble: Trouble | None = None
        self._real: Effects

    def arm(self, trouble: Trouble | None) -> None:
        self.effects, self._trouble = [], trouble

    def upon(self, real: Effects) -> "MortalEffects":
        """Of the next start."""
        self._real = real
        return self

    @property
    def tables(self) -> "MortalEffects":
        return self

    def create(self, spec: TableSpec) -> TableState:
        return self._effect("create", spec.name, lambda: self._real.tables.create(spec))

    def change(self, place: Position, changes: Sequence[Evolution]) -> tuple[TableState, Plan]:
        return self._effect("add columns to", place.table, lambda: self._real.tables.change(place, changes))

    def lay_out(self, place: Position, partitions: Sequence[Partition]) -> tuple[TableState, list[str]]:
        return self._effect("lay out", place.table, lambda: self._real.tables.lay_out(place, partitions))

    def set_properties(self, place: Position, properties: Mapping[str, str]) -> None:
        self._real.tables.set_properties(place, properties)

    def prove(self, log: TableState) -> Mapping[str, str]:
        del log  # each world would try this catalog again; tests/faults/test_lax_catalog.py tries others
        return {}

    def move_up(self, place: Position) -> Position:
        return self._real.move_up(place)

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        return self._effect("open", first, lambda: self._real.tables.claim(first, others))

    def open(self, table: str, epoch: int) -> Position:
        return self._effect("open", table, lambda: self._real.tables.open(table, epoch))

    def register(self, record: Position, tables: Mapping[str, Registered]) -> None:
        if tables:
            self._effect("register", record.table, lambda: self._real.tables.register(record, tables))

    def write(self, work: Work, tasks: Sequence[Sequence[Share]]) -> Sequence[Receipt]:
        """Here, and not on Spark: what goes into a task and comes out of it is pickled all the same."""
        described = pickle.dumps(work)

        def done(number: int, shares: Sequence[Share]) -> Receipt:
            attempts = range(2 if self.hasty else 1)  # Spark keeps the receipt of one attempt
            *_, last = [do(pickle.loads(described), number, attempt, shares) for attempt in attempts]
            return cast("Receipt", pickle.loads(pickle.dumps(last)))

        receipts: list[Receipt] = []
        for number, shares in enumerate(tasks):
            name = f"{'first' if work.only is None else 'next'} pass"
            receipts.append(self._effect("read", name, partial(done, number, shares)))
        return receipts

    def write_letters(self, landing: Landing, rows: pa.Table, token: Token) -> Sequence[DataFileReceipt]:
        return self._effect("write", landing.place.table, lambda: self._real.write_letters(landing, rows, token))

    def land(self, landing: Landing, files: Sequence[DataFileReceipt], mark: Mark) -> Position:
        return self._effect("publish", landing.place.table, lambda: self._real.land(landing, files, mark))

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        return self._effect("record", place.table, lambda: self._real.record(place, rows, mark, extra))

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        self._real.acknowledge(complete, at_once=at_once)

    def expire(self, place: Position) -> Position:
        return self._real.expire(place)

    def _effect(self, verb: str, table: str, do: Callable[[], Done]) -> Done:
        effect = verb, table.rpartition(".")[2]
        how = self._trouble.how if self._trouble and self._trouble.is_due(self.effects, effect) else None
        if how == CRASHES:
            raise Crash
        self.effects.append(effect)
        if how:
            self._trouble = None
        if how == REFUSED:
            raise TryAgain(f"could not {verb} {table}")
        done = do()
        if how == UNANSWERED:
            raise TryAgain(f"no answer when asked to {verb} {table}")
        return done


class MortalThreads(ThreadPoolExecutor):
    """One thread, so that effects come in the same order each time; a dead process begins nothing more."""

    def __init__(self) -> None:
        super().__init__(1)
        self.dead = False

    def submit(self, do: Callable[..., Any], /, *what: Any, **named: Any) -> Future[Any]:
        return super().submit(self._unless_dead, do, *what, **named)

    def _unless_dead(self, do: Callable[..., Any], *what: Any, **named: Any) -> Any:
        if self.dead:
            raise Crash
        try:
            return do(*what, **named)
        except Crash:
            self.dead = True
            raise


class World:
    """A topic, its tables, and at most one process that carries from one to the others."""

    def __init__(self, there: FileCatalog, scratch: Path) -> None:
        self.name = f"street_{uuid4().hex[:12]}"
        self.reader, self.topic = TablesReader(there, self.name), Topic()
        self.judgement = Judgement()
        self.cores, self.hasty = 1, False
        self._scratch = scratch / self.name
        self._trouble: Trouble | None = None
        self.process: MortalEffects | None = None
        self._lake: PipelineTables | None = None  # of that process: it knows its last epoch
        self.runner: BatchRunner | None = None
        self._done: Offsets = {}

    def tell(self, story: Sequence[Land | Trouble]) -> None:
        for item in story:
            match item:
                case Land(values, most):
                    self.topic.produce(values)
                    self.land(most)
                case Trouble():
                    self.befall(item)

    def befall(self, trouble: Trouble) -> None:
        """From now on; it is the next start's where no process is alive."""
        self._trouble = trouble
        if self.process:
            self.process.arm(trouble)

    def land(self, most: int = ALL) -> None:
        """A start if need be, and one batch; trouble ends both."""
        try:
            self._batch(self.runner or self.start(), most)
        except Crash:
            print(f"{self._trouble} after {self.process and self.process.effects}")
            self.die()
        except TryAgain as again:
            print(f"{type(again).__name__}: {again}")
            if COUNTED.search(str(again)):
                raise
            self._end()
        except TableChanged:  # a hint that comes too late: there is a column by now
            self._end(replace(self.judgement, hints={}))
        except BadRecord:
            self._end(replace(self.judgement, on_error="log"))
        else:
            if self._trouble:
                self.die()

    def die(self) -> None:
        self._end()
        self.process = None

    def land_all(self) -> None:
        self.die()
        self._trouble, self.judgement = None, Judgement()
        self.land()
        assert self._done == self.topic.ends()

    def _end(self, judgement: Judgement | None = None) -> None:
        if self.runner:
            self.runner.threads.shutdown()
        self.runner = None
        self.judgement = judgement or (self._trouble.then if self._trouble else self.judgement)
        self._trouble = None

    def start(self) -> BatchRunner:
        structlog.reset_defaults()
        plain = self._settings()
        watch = Watch(self.name, OFF)
        world, stream = RealWorld(Connection("sqlite:"), watch), plain.streams[0]
        spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=self.cores)))
        if not self.process or self.process.way != plain.catalog.publish:
            self.process, self._lake = MortalEffects(plain.catalog.publish), world.lake(plain, self.name)
            self.process.arm(self._trouble)
        assert self._lake
        begun = OneStart(
            Stream(plain, stream, spark, world, watch, self._scratch, DRAINING, Event()),
            spark,
            self.topic,
            self.topic.identity(),
            self._lake,
            RetryBudget(1, 1),
            ExitStack(),
            ExitStack(),
        )
        self.process.hasty = self.hasty
        effects = self.process.upon(world.effects(plain, stream, self._lake, self.topic, spark))
        self.runner = begun.opened(effects, MortalThreads())
        self._done = self.runner.start
        return self.runner

    def _settings(self) -> Settings:
        judged = self.judgement
        together = {"table": "together", "types": ["b", "c"], "hints": judged.hints}
        each = {"table": "{type}", "hints": judged.hints}
        stream = {
            "topics": [TOPIC],
            "type_from": "field:type",
            "keep_types": judged.keep_types,
            "on_error": judged.on_error,
            "max_tables": judged.max_tables,
            "tables": [together, each] if judged.together else [each],
        }
        return Settings.model_validate(
            {
                "name": self.name,
                "catalog": {"uri": "http://localhost", "namespace": self.name, "publish": judged.publish},
                "streams": [stream],
                "ledger": {"batch_every": 0},
            }
        )

    def _batch(self, runner: BatchRunner, most: int) -> None:
        end = {at: min(high, self._done[at] + most) for at, high in self.topic.ends().items()}
        if end == self._done:
            return
        batch = Range(self._done, end)
        assert runner.run(batch) == batch
        self._done = end

    # -- the law ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Once all has been read."""
        found = self.reader.by_pyiceberg(*self.tables(), DEAD)
        assert {at: count for at, count in found.items() if count > 1} == {}
        assert found.keys() <= self.topic.places().keys()
        check_batch_record(self.reader, self.topic.places())
        rows = kind_of(self.reader, "batch")
        parts = [part for row in rows for part in row["partitions"]]
        for (topic, number), end in self.topic.ends().items():
            mine = sorted((part["start"], part["end"]) for part in parts if part["partition"] == number)
            mine = [span for span in mine if span[0] < span[1]]
            assert [start for start, _ in mine] == [0, *(end for _, end in mine)][: len(mine)]
            assert max((end for _, end in mine), default=0) == end
            assert {at for at in found if at[1] == number} <= {(topic, number, offset) for offset in range(end)}
        for part in parts:
            held = sum((part["topic"], part["partition"], n) in found for n in range(part["start"], part["end"]))
            # So what is in no table was filtered or discarded, and nothing else was.
            assert held == part["landed"] + part["dead"] + part["trimmed"], part
        added = self._added()
        for row in rows:
            assert added.pop((row["token"], False), 0) == sum(part["landed"] for part in row["partitions"]), row
            assert added.pop((row["token"], True), 0) == sum(part["dead"] for part in row["partitions"]), row
        # What landed in batches that were never recorded is what others found in its place.
        assert sum(added.values()) == sum(part["trimmed"] for part in parts)

    def tables(self) -> list[str]:
        names = [name for _, name in self.reader.catalog.list_tables(self.name)]
        return sorted({*names} - {RECORD, DEAD})

    def _added(self) -> Counter[tuple[str, bool]]:
        """Rows by the token that added them, to tables of events and to the dead letters."""
        found: Counter[tuple[str, bool]] = Counter()
        for name in (*self.tables(), DEAD):
            table = self.reader.table(name)
            for snapshot in map(table.snapshot_by_id, self.reader.main(name)):
                summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
                if rows := int(summary.get("added-records", 0)):
                    found[summary[TOKEN], name == DEAD] += rows
        return found


Worlds = Callable[[], World]


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worlds]:
    # For a few records.
    monkeypatch.setattr("lakehouse_ingest.pipeline.batch.PER_TASK", A_TASK)
    monkeypatch.setattr("lakehouse_ingest.pipeline.task.KEPT_LETTERS", 4 * A_LETTER)
    monkeypatch.setattr("lakehouse_ingest.pipeline.task.LOOKED_AT", A_CHUNK)
    monkeypatch.setattr("lakehouse_ingest.pipeline.passes.OFTEN", 1)
    there = FileCatalog("lake", **kept_in(tmp_path))
    monkeypatch.setattr(catalog, "connect", lambda _, settled: catalog.CatalogClient(there, settled))
    yield lambda: World(there, tmp_path)
    there.close()


def event(kind: object, **fields: object) -> str:
    return json.dumps({"type": kind, **fields})


# -- a batch with a new field -----------------------------------------------------------------------------


class TestNewField:
    def effects(self, world: World, values: Sequence[Value]) -> list[Effect]:
        """Of a batch with these values, after one that has made the table."""
        world.tell([Land([event("known", n=n) for n in range(20)])])
        assert world.process
        world.process.arm(None)
        world.tell([Land(values)])
        world.check()
        found = [*dict.fromkeys(world.process.effects)]
        return [each for each in found if each[0] in ("read", "add columns to")]

    def test_that_stays_is_found_in_the_samples_and_read_once(self, worlds: Worlds) -> None:
        """The look, which reads some of the routes as a next pass does, comes before the first pass."""
        look, added, whole = ("read", "next pass"), ("add columns to", "known"), ("read", "first pass")
        values = [event("known", n=n, **({"new": n} if n > 9 else {})) for n in range(40)]
        assert self.effects(worlds(), values) == [look, added, whole]

    def test_that_no_sample_has_is_found_by_the_first_pass(self, worlds: Worlds) -> None:
        """What the look and the next pass have in common is listed once."""
        look, added, whole = ("read", "next pass"), ("add columns to", "known"), ("read", "first pass")
        values = [event("known", n=n, **({"new": n} if n == 1 else {})) for n in range(60)]
        assert self.effects(worlds(), values) == [look, whole, added]


# -- every effect of one batch ----------------------------------------------------------------------------

EFFECTS = {
    ("add columns to", "known"),
    ("create", "new_1"),
    ("open", "new_1"),
    ("register", RECORD),
    ("read", "first pass"),
    ("read", "next pass"),
    ("write", DEAD),
    *(("publish", table) for table in ("known", "new_1", DEAD)),
    ("record", RECORD),
}


def round_of(number: int) -> list[Value]:
    """A table that is known gets a column, another one is made, and some records can't land."""
    known = [event("known", n=n, **{f"column_{number}": n}) for n in range(3)]
    return [*known, event(f"new_{number}", n=1), event("known", n="text"), event(None, n=2), "{", HOLE]


def test_a_crash_before_every_effect_of_a_batch_loses_and_doubles_nothing(worlds: Worlds) -> None:
    """One process after the other dies, each a step further in the same batch, which has grown meanwhile."""
    world = worlds()
    world.tell([Land([event("known", n=n) for n in range(20)])])
    assert world.process
    world.process.arm(None)
    world.tell([Land(round_of(0))])
    effects = [(verb, table.replace("new_0", "new_1")) for verb, table in world.process.effects]
    assert len(dict.fromkeys(effects)) == len(EFFECTS)
    assert {*effects} == EFFECTS
    for number, effect in enumerate(dict.fromkeys(effects)):
        world.die()
        world.start()
        process = world.process
        world.befall(Trouble(CRASHES, before=effect))
        world.tell([Land(round_of(1) if number == 0 else [event("known", n=1), event("new_1", n=1), "{"])])
        assert world.process is None, f"no crash before {effect}"
        assert process
        print(f"before {effect}: {process.effects}")
    world.land_all()
    world.land_all()  # killed once all was done: there is nothing more to do
    world.check()
    places = world.reader.by_pyiceberg("known"), world.reader.by_pyiceberg("new_1"), world.reader.by_pyiceberg(DEAD)
    crashes = len(EFFECTS) - 1  # that one record more for each of them came before
    assert [sum(found.values()) for found in places] == [20 + 3 + 3 + crashes, 1 + crashes, 3 + 3 + crashes]


# -- any story --------------------------------------------------------------------------------------------


def story_of(dice: random.Random) -> list[Land | Trouble]:
    rounds = [(trouble_of(dice), land_of(dice)) for _ in range(3)]
    return [item for pair in rounds for item in pair]


def trouble_of(dice: random.Random) -> Trouble:
    how = dice.choice([CRASHES, CRASHES, REFUSED, UNANSWERED])
    # A batch publishes once for each table, and the dead letters.
    of, most = dice.choices([("publish", 4), ("read", 5), ("", 15)], [5, 2, 3])[0]
    after = dice.randint(0, most)
    return Trouble(how, after=after, of=of, then=judgement_of(dice))


def judgement_of(dice: random.Random) -> Judgement:
    return Judgement(
        keep_types=dice.choice([None, "^(a|b)$"]),
        on_error=dice.choice(["log", "log", "log", "ignore", "ignore", "raise"]),
        together=dice.random() < 0.5,
        hints=dice.choice([{}, {"x": "long"}]),
        max_tables=dice.choice([100, 100, 2]),
        publish=dice.choice(["branch", "branch", "direct"]),
    )


def land_of(dice: random.Random) -> Land:
    return Land([value_of(dice) for _ in range(dice.randint(10, 25))], dice.choice([5, ALL, ALL]))


def value_of(dice: random.Random) -> Value:
    """Half of them sound; one field is null, a number or text: what it becomes depends on who comes first."""
    if dice.random() < 0.5:
        return event(dice.choice("abc"), n=1, x=dice.choice([None, 1, 2, "text"]))
    return dice.choice([event("a", n="text"), event(None, n=1), '{"type": "a"', "[]", "", None, HOLE, HOLE])


@RARE
@given(st.integers(0, 10**9))
def test_crashes_other_batches_and_other_settings_lose_and_double_nothing(worlds: Worlds, seed: int) -> None:
    dice = random.Random(seed)
    world = worlds()
    world.cores, world.hasty = dice.choice([1, 2, 4]), dice.random() < 0.3
    world.judgement = judgement_of(dice)
    world.tell(story_of(dice))
    world.land_all()
    world.check()
