"""The ledger's laws: what is written is read back, ranges lose nothing, and a crash anywhere doubles nothing."""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_ingest.errors import LedgerUnclear
from lakehouse_ingest.ledger import keys
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import MARK, TOKEN
from lakehouse_ingest.ledger.marks import FORMAT, Mark, highest
from lakehouse_ingest.pipeline.next_batch import next_end
from lakehouse_ingest.records import Offsets, Range, SourceIdentity, Token, TopicPartition
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.start_offsets import begin, complete, uncertain
from lakehouse_ingest.tables import Position

TOPICS = st.one_of(st.sampled_from(["a", "a.b", "a-b", "/events/payments"]), st.text(min_size=1, max_size=20))
PLACES = st.tuples(TOPICS, st.integers(0, 40))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**62), max_size=30)
TEXTS = st.text(max_size=20)
TOKENS = st.builds(Token, TEXTS, st.integers(1, 5), st.integers(0, 2**40), st.integers(-1, 2**40))
IDENTITIES = st.builds(SourceIdentity, TEXTS, st.dictionaries(TOPICS, st.text(min_size=1, max_size=22), max_size=4))
MARKS = st.builds(Mark, TOKENS, IDENTITIES, OFFSETS, OFFSETS, OFFSETS, TEXTS, TEXTS)


def same(found: Mark, mark: Mark) -> bool:
    # A topic without an id is read back with an empty one, which compares with nothing.
    ids = {topic: topic_id for topic, topic_id in found.source.topics.items() if topic_id}
    return replace(found, source=SourceIdentity(found.source.cluster, ids)) == mark


def mark(
    following: Offsets, *, generation: int = 1, epoch: int = 1, batch: int = 0, complete: Offsets | None = None
) -> Mark:
    return Mark(Token("p", generation, epoch, batch), SourceIdentity(), {}, following, complete or {})


class TestMark:
    @given(MARKS)
    def test_is_read_back_as_it_was_written(self, mark: Mark) -> None:
        assert same(ledger.decode(ledger.encode(mark)), mark)

    @given(OFFSETS, TOKENS)
    def test_that_is_complete_where_it_starts_is_read_back(self, offsets: Offsets, token: Token) -> None:
        usual = Mark(token, SourceIdentity(), offsets, {at: n + 5 for at, n in offsets.items()}, offsets)
        assert same(ledger.decode(ledger.encode(usual)), usual)

    @given(st.lists(st.integers(0, 2**40), min_size=600, max_size=600), st.integers(0, 10**6))
    @settings(max_examples=20)
    def test_of_600_partitions_stays_compact(self, offsets: list[int], read: int) -> None:
        start = {("telemetry", number): offset for number, offset in enumerate(offsets)}
        following = {at: offset + read % (at[1] + 1) for at, offset in start.items()}
        identity = SourceIdentity("MkU3OEVBNTcwNTJENDM2Qk", {"telemetry": "x" * 22})
        text = ledger.encode(Mark(Token("plant-7", 1, 9, 1000), identity, start, following, start, "abc", "f" * 32))
        assert len(text) < 9_000

    @given(MARKS)
    def test_is_printable_ascii_without_spaces(self, mark: Mark) -> None:
        text = ledger.encode(mark)
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text

    @given(OFFSETS, OFFSETS)
    def test_holds_what_landed_and_what_is_complete(self, following: Offsets, complete: Offsets) -> None:
        held = mark(following, complete=complete).held()
        assert held == {at: max(following.get(at, -1), complete.get(at, -1)) for at in {*following, *complete}}


class TestLedger:
    @given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 9), st.booleans()), max_size=8))
    def test_keeps_all_that_was_known_in_a_fence(self, landings: list[tuple[str, int, bool]]) -> None:
        """Of every pipeline, whatever older commits are expired after it; and it is nobody's landing."""
        history: list[dict[str, str]] = []
        for batch, (pipeline, reached, is_record) in enumerate(landings):
            landed = Mark(Token(pipeline, 1, 1, batch), SourceIdentity(), {}, {("t", 0): reached}, {})
            heads = {f"{keys.HEADS}{pipeline}": ledger.heads_text({"n.t": (1, batch)})} if is_record else {}
            history.insert(0, {**ledger.to_summary(landed, ledger.carried(history)), **heads})
        fenced = ledger.fence(history, "p", 2)
        for pipeline in "pq":
            before, after = ledger.newest(history, pipeline), ledger.newest([fenced], pipeline)
            assert (before is None) == (after is None)
            assert before is None or (after is not None and after.token == before.token)
            assert ledger.heads([fenced], pipeline) == ledger.heads(history, pipeline)
        assert TOKEN not in fenced

    @given(MARKS, st.dictionaries(st.text(min_size=1, max_size=8), TEXTS))
    def test_carries_marks_of_other_pipelines_unchanged(self, mark: Mark, others: dict[str, str]) -> None:
        """Even marks in a format of the future: they are nobody's business but their pipeline's."""
        carried = {
            **{f"{MARK}{name}": text for name, text in others.items()},
            **{f"{keys.SETTINGS}{name}": text for name, text in others.items()},
            "added-records": "5",
            TOKEN: "of somebody else",
        }
        summary = ledger.to_summary(mark, carried)
        own = mark.token.pipeline
        assert {key: text for key, text in summary.items() if key.startswith(MARK) and key != f"{MARK}{own}"} == {
            f"{MARK}{name}": text for name, text in others.items() if name != own
        }
        assert {key: text for key, text in summary.items() if key.startswith(keys.SETTINGS)} == {
            f"{keys.SETTINGS}{name}": text for name, text in others.items()
        }
        assert "added-records" not in summary
        assert summary[TOKEN] == str(mark.token)
        found = ledger.from_summary(summary, own)
        assert found is not None
        assert same(found, mark)

    def test_has_no_mark_of_an_unknown_pipeline(self) -> None:
        assert ledger.from_summary(ledger.to_summary(mark({}), {}), "q") is None
        assert ledger.newest([{}, {"added-records": "1"}], "p") is None

    @given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), OFFSETS, OFFSETS), min_size=1, max_size=8))
    def test_has_the_highest_offsets_of_the_highest_generation(self, drawn: list[Any]) -> None:
        marks = [
            mark(following, generation=generation, epoch=epoch, batch=batch, complete=complete)
            for batch, (generation, epoch, following, complete) in enumerate(drawn)
        ]
        found = ledger.newest((ledger.to_summary(each, {}) for each in marks), "p")
        top = max(each.token.generation for each in marks)
        living = [each for each in marks if each.token.generation == top]
        assert found is not None
        assert found.next == highest(each.next for each in living)
        assert found.complete == highest(each.complete for each in living)
        assert found.token == max((each.token for each in living), key=lambda token: (token.epoch, token.batch))


class TestUnclearMark:
    @given(st.text(max_size=200))
    def test_of_any_text_is_refused(self, text: str) -> None:
        with pytest.raises(LedgerUnclear):
            ledger.decode(text)

    @given(MARKS, st.data())
    def test_that_is_truncated_is_refused(self, mark: Mark, data: st.DataObject) -> None:
        text = ledger.encode(mark)
        with pytest.raises(LedgerUnclear):
            ledger.decode(text[: data.draw(st.integers(0, len(text) - 1))])

    @given(MARKS, st.data())
    def test_that_lacks_a_part_is_refused(self, mark: Mark, data: st.DataObject) -> None:
        front, _, packed = ledger.encode(mark).partition(":")
        body = json.loads(zlib.decompress(base64.b85decode(packed)))
        gone = data.draw(st.sampled_from(sorted(body)))
        missing = {key: value for key, value in body.items() if key != gone}
        for wrong in (missing, [body], None, 5, "text"):
            again = base64.b85encode(zlib.compress(json.dumps(wrong).encode())).decode()
            with pytest.raises(LedgerUnclear):
                ledger.decode(f"{front}:{again}")

    @given(MARKS, st.integers(FORMAT + 1, 99))
    def test_in_a_newer_format_is_refused_with_what_to_install(self, mark: Mark, written: int) -> None:
        _, _, packed = ledger.encode(mark).partition(":")
        with pytest.raises(LedgerUnclear, match=f"format {written}, .* install the newer"):
            ledger.decode(f"{written}:{packed}")


# -- ranges -----------------------------------------------------------------------------------------------


def entry(offsets: Offsets) -> str:
    """As Spark writes it: a version, the batch's metadata, and the offsets of its only source."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(number)] = offset
    return f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{json.dumps(by_topic)}'


@st.composite
def histories(draw: st.DrawFn) -> tuple[Offsets, list[Offsets]]:
    """A start map and the ends of consecutive batches; partitions may appear later, and then begin at 0."""
    places = draw(st.lists(PLACES, min_size=1, max_size=6, unique=True))
    first = draw(st.integers(1, len(places)))
    start = {at: draw(st.integers(0, 10**12)) for at in places[:first]}
    now: dict[TopicPartition, int] = dict(start)
    ends: list[Offsets] = []
    for _ in range(draw(st.integers(1, 6))):
        for at in places[: draw(st.integers(len(now), len(places)))]:
            now[at] = now.get(at, 0) + draw(st.integers(0, 50))
        ends.append(dict(now))
    return start, ends


IDENTITY = SourceIdentity("cluster", {"t": "id"})


@dataclass
class Store:
    """A table of the model: its rows and its history of summaries, oldest first."""

    rows: list[tuple[TopicPartition, int]] = field(default_factory=list)
    history: list[dict[str, str]] = field(default_factory=list)

    def place(self, name: str) -> Position:
        newest = ledger.newest(reversed(self.history), "p")
        carried = self.history[-1] if self.history else {}
        return Position(name, "branch", len(self.history) or None, newest, carried, known=True)

    def commit(self, rows: Sequence[tuple[TopicPartition, int]], mark: Mark) -> None:
        self.rows += rows
        self.history.append(ledger.to_summary(mark, self.place("").carried))


class Crash(Exception):
    """The process dies here."""


Judge = Callable[[TopicPartition, int], str]
DEAD = "dead"


@dataclass
class Model:
    """The street of `batch.py` over lists: rows to their tables, dead ones to the dead letters, then the record."""

    stores: dict[str, Store] = field(default_factory=lambda: {name: Store() for name in ("a", "b", DEAD)})
    record: Store = field(default_factory=Store)
    high: dict[TopicPartition, int] = field(default_factory=dict)
    epoch: int = 0
    held: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def grow(self, data: st.DataObject) -> None:
        if data.draw(st.booleans(), label="a partition is added"):
            self.high["t", len(self.high)] = 0

    def start(self) -> tuple[Offsets, Token]:
        self.epoch += 1
        now = SourceNow(IDENTITY, dict.fromkeys(self.high, 0), self.high)
        record, places = self.record.place("record"), [store.place(name) for name, store in self.stores.items()]
        start, done = begin(record, places, now, now.low), complete(record, places)
        token = Token("p", 1, self.epoch, -1)
        self.record.commit([], Mark(token, IDENTITY, start, start, start))
        self.held = {
            row
            for place in uncertain(places, done)
            for row in self.stores[place.table].rows
            if row[1] >= done.get(row[0], 0)
        }
        return start, token

    def land(self, name: str, batch: Range, token: Token, judge: Judge) -> None:
        """Leaves alone what has a place, skips an empty append, and carries the highest map, as a landing does."""
        store = self.stores[name]
        place = store.place(name)
        rows = [
            (at, offset)
            for at in batch.end
            for offset in range(batch.start[at], batch.end[at])
            if (at, offset) not in self.held and judge(at, offset) == name
        ]
        if rows:
            before = place.mark.complete if place.mark else {}
            done = highest([before, batch.start])
            store.commit(rows, Mark(token, IDENTITY, batch.start, highest([place.held, batch.end]), done))

    def run(
        self, batch: Range, token: Token, crash: int, judge: Judge, *, order: Sequence[str], recorded: bool
    ) -> None:
        """Landings are independent: any may come first; the record may wait for later batches."""
        effects: list[Callable[[], None]] = [partial(self.land, name, batch, token, judge) for name in order]
        if recorded:
            effects.append(lambda: self.record.commit([], Mark(token, IDENTITY, batch.start, batch.end, batch.end)))
        for number, effect in enumerate(effects):
            if number == crash:
                raise Crash
            effect()
        if crash == len(effects):
            raise Crash


class TestBatches:
    @given(histories(), st.integers(10, 300))
    def test_cover_every_offset_once(self, history: tuple[Offsets, list[Offsets]], most: int) -> None:
        """A partition that was added while the query ran is left to the next start."""
        start, ends = history
        at, ranges = start, list[Range]()
        for now in ends:
            while (end := next_end(at, now, most)) != at:
                ranges.append(Range(at, end))
                assert 0 < len(ranges[-1]) <= most
                at = end
            assert at == {place: now[place] for place in start}
        for place in start:
            spans = [(found.start[place], found.end[place]) for found in ranges]
            assert all(first <= last for first, last in spans)
            assert all(before[1] == after[0] for before, after in pairwise(spans))
        assert sum(map(len, ranges)) == sum(ends[-1][place] - first for place, first in start.items())

    @settings(max_examples=200)
    @given(st.data())
    def test_lose_and_double_nothing_despite_crashes_and_other_routing(self, data: st.DataObject) -> None:
        """Where a record belongs may be judged otherwise at each start: by other settings, or by other columns."""
        model = Model(high={("t", 0): 0})

        def judging() -> Judge:
            seed = data.draw(st.integers(0, 99), label="how this start judges")
            names = [*model.stores]
            return lambda at, offset: names[(offset * 7 + at[1] + seed * (offset % 3)) % len(names)]

        for _ in range(data.draw(st.integers(1, 6), label="starts")):
            model.grow(data)
            start, token = model.start()
            done, judge = dict(start), judging()
            try:
                for number in range(data.draw(st.integers(0, 4), label="batches")):
                    model.grow(data)
                    for at in model.high:
                        model.high[at] += data.draw(st.integers(0, 6), label=f"produced to {at}")
                    end = {at: data.draw(st.integers(done.get(at, 0), high)) for at, high in model.high.items()}
                    batch = Range({at: done.get(at, 0) for at in end}, end)
                    model.run(
                        batch,
                        replace(token, batch=number),
                        data.draw(st.integers(0, 9), label="crash after so many effects"),
                        judge,
                        order=data.draw(st.permutations([*model.stores]), label="order of landings"),
                        recorded=data.draw(st.booleans(), label="record written"),
                    )
                    done = end
            except Crash:
                continue
        start, token = model.start()
        last = Range(start, dict(model.high))
        model.run(last, replace(token, batch=0), 99, judging(), order=[*model.stores], recorded=True)
        read = Counter(row for store in model.stores.values() for row in store.rows)
        assert read == Counter((at, offset) for at, high in model.high.items() for offset in range(high))
        assert model.record.place("record").held == model.high
