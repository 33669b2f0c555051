"""Marks: each table says in its own snapshots which offsets it holds.

A commit carries a mark for each pipeline that feeds the table: a new one of its own, and copies of the others. So the
newest snapshot of `main` with a mark knows all of them. `next` is the offset at which the table goes on. `complete` is
the offset below which all tables of the pipeline have their rows. A start takes the highest `complete` of all tables;
a single table is done up to the higher of its two.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from lakehouse_ingest.errors import LedgerUnclear
from lakehouse_ingest.ledger.keys import FENCE, HEADS, MARK, SETTINGS, SIZE, TOKEN, TRACE
from lakehouse_ingest.records import Offsets, SourceIdentity, Token

FORMAT = 1
SEPARATOR = ":"  # stands between a mark's format and its text; base 85 does not use it
LARGEST = 4 << 20  # bytes of an unpacked mark or of unpacked heads; 100,000 partitions take less

Summary = Mapping[str, str]
Head = tuple[int, int]
"""Epoch and batch of the last commit of a batch to a table."""


@dataclass(frozen=True)
class Mark:
    """The position of one pipeline in one table, as a commit carries it."""

    token: Token
    source: SourceIdentity
    start: Offsets
    next: Offsets
    complete: Offsets
    settings: str = ""
    trace: str = ""

    def held(self) -> Offsets:
        return highest([self.next, self.complete])


def highest(maps: Iterable[Offsets]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for offsets in maps:
        for at, offset in offsets.items():
            found[at] = max(offset, found.get(at, offset))
    return found


def no_further(offsets: Offsets, ends: Offsets) -> dict[tuple[str, int], int]:
    """The offsets, each of them lowered to its end if it lies beyond."""
    return {at: min(offset, ends.get(at, offset)) for at, offset in offsets.items()}


# -- in a snapshot's summary ------------------------------------------------------------------------------


def to_summary(mark: Mark, carried: Summary) -> dict[str, str]:
    """The properties of a commit: our mark, and unchanged copies of the other pipelines' marks in `carried`."""
    others = as_it_was(carried)
    own = {
        TOKEN: str(mark.token),
        TRACE: mark.trace,
        f"{MARK}{mark.token.pipeline}": encode(mark),
    }
    return {**others, **{key: text for key, text in own.items() if text}}


def as_it_was(carried: Summary) -> dict[str, str]:
    """What every commit has to copy, whoever makes it."""
    return {key: text for key, text in carried.items() if key.startswith((MARK, SETTINGS, HEADS, SIZE))}


def without_marks(carried: Summary) -> dict[str, str]:
    """What may be copied over a cut in the history.

    A mark may not: its pipeline may have committed since we read the mark, and a mark that is too low denies rows that
    are there. Without a mark, a start looks for the rows.
    """
    return {key: text for key, text in as_it_was(carried).items() if not key.startswith(MARK)}


def carried(ancestors: Iterable[Summary]) -> Summary:
    """The newest summary with a mark of any pipeline. It holds the marks of all pipelines."""
    return next((each for each in ancestors if any(key.startswith(MARK) for key in each)), {})


def fence(ancestors: Sequence[Summary], pipeline: str, epoch: int) -> dict[str, str]:
    """The properties of a commit without rows. It copies what is known, because older commits may expire."""
    return {**as_it_was(carried(ancestors)), FENCE: f"{pipeline}/{epoch}"}


def from_summary(summary: Summary, pipeline: str) -> Mark | None:
    text = summary.get(f"{MARK}{pipeline}")
    if text is None:
        return None
    return decode(text)


# What `newest` has found, by a digest of the marks' texts, for as long as it is in use. Each commit looks at all
# marks of a table four times. To decode a hundred of them takes 60 ms with 600 partitions.
_found: WeakValueDictionary[bytes, Mark] = WeakValueDictionary()


def newest(ancestors: Iterable[Summary], pipeline: str) -> Mark | None:
    """The highest position among the ancestors of `main`, the newest first, within the highest generation."""
    texts = [text for summary in ancestors if (text := summary.get(f"{MARK}{pipeline}")) is not None]
    if not texts:
        return None
    if (found := _found.get(key := _digest(texts))) is None:
        older = _found.get(_digest(texts[1:]))
        first = decode(texts[0])
        follows = older is not None and _order(first) > _order(older)
        found = _highest([older, first] if older and follows else [first, *map(decode, texts[1:])])
        _found[key] = found
    return found


def _digest(texts: Sequence[str]) -> bytes:
    return sha256(repr(texts).encode()).digest()


def _order(mark: Mark) -> tuple[int, int, int]:
    return mark.token.generation, mark.token.epoch, mark.token.batch


def _highest(marks: Sequence[Mark]) -> Mark:
    generation = max(mark.token.generation for mark in marks)
    living = [mark for mark in marks if mark.token.generation == generation]
    last = max(living, key=lambda mark: (mark.token.epoch, mark.token.batch))
    return Mark(
        last.token,
        SourceIdentity(last.source.cluster, ids_of(living)),
        last.start,
        highest(mark.next for mark in living),
        highest(mark.complete for mark in living),
        last.settings,
        last.trace,
    )


def heads(ancestors: Iterable[Summary], pipeline: str) -> dict[str, Head]:
    """The last batch in each table of a pipeline, according to the newest commit of the batch log."""
    text = next((found for summary in ancestors if (found := summary.get(f"{HEADS}{pipeline}"))), None)
    try:
        return {name: (epoch, batch) for name, epoch, batch in _unpacked(text)} if text else {}
    except (ValueError, TypeError) as failure:
        raise _unreadable(failure) from failure


def heads_text(found: Mapping[str, Head]) -> str:
    return _packed([[name, *head] for name, head in sorted(found.items())])


def ids_of(marks: Iterable[Mark]) -> dict[str, str]:
    """The last known id of each topic, including topics that the last start did not read."""
    found: dict[str, str] = {}
    for mark in sorted(marks, key=lambda mark: (mark.token.epoch, mark.token.batch)):
        found |= {topic: topic_id for topic, topic_id in mark.source.topics.items() if topic_id or topic not in found}
    return found


def encode(mark: Mark) -> str:
    """The mark as text, with its format in front: pipelines that write another format copy it too.

    It is compact: 600 partitions take about 6 kB, and plain JSON of the three maps would take 30 kB.
    """
    keys = sorted({*mark.next, *mark.start, *mark.complete})
    topics = sorted({*mark.source.topics, *(topic for topic, _ in keys)})
    body: dict[str, Any] = {
        "g": mark.token.generation,
        "e": mark.token.epoch,
        "b": mark.token.batch,
        "p": mark.token.pipeline,
        "c": mark.source.cluster,
        "t": [[topic, mark.source.topics.get(topic, ""), _runs(keys, topic)] for topic in topics],
        "n": [mark.next.get(at, -1) for at in keys],
        # Both lie close to `next`, so as differences they take a byte or two each. Usually both are the same.
        "s": [_less(mark.next.get(at, -1), mark.start.get(at)) for at in keys],
        "d": None
        if mark.complete == mark.start
        else [_less(mark.next.get(at, -1), mark.complete.get(at)) for at in keys],
        "h": mark.settings,
        "r": mark.trace,
    }
    return _packed(body)


def _packed(body: Any) -> str:
    text = json.dumps(body, separators=(",", ":")).encode()
    if len(text) > LARGEST:  # no start could read it
        raise LedgerUnclear(
            f"a commit would carry more than {LARGEST >> 20} MiB for the next start, because the pipeline has too many"
            " partitions or tables; divide them among several pipelines"
        )
    packed = zlib.compress(text, 9)
    return f"{FORMAT}{SEPARATOR}{base64.b85encode(packed).decode()}"


def decode(text: str) -> Mark:
    try:
        body = _unpacked(text)
        runs = [(topic, range(first, last + 1)) for topic, _, its in body["t"] for first, last in its]
        # A few bytes can name billions of partitions, so check their number before making anything of them.
        if sum(map(len, (numbers for _, numbers in runs))) != len(body["n"]):
            raise _unreadable(ValueError("runs and offsets differ"))
        keys = [(topic, number) for topic, numbers in runs for number in numbers]
        following = dict(zip(keys, body["n"], strict=True))
        token = Token(body["p"], body["g"], body["e"], body["b"])
        identity = SourceIdentity(body["c"], {topic: topic_id for topic, topic_id, _ in body["t"]})
        start, complete = (
            {at: following[at] - less for at, less in zip(keys, differences, strict=True) if less is not None}
            for differences in (body["s"], body["d"] or body["s"])
        )
        known = {at: offset for at, offset in following.items() if offset >= 0}
        return Mark(token, identity, start, known, complete, body["h"], body["r"])
    except (ValueError, KeyError, TypeError, OverflowError) as failure:
        raise _unreadable(failure) from failure


def _unpacked(text: str) -> Any:
    written, _, packed = text.partition(SEPARATOR)
    if written.isdecimal() and int(written) > FORMAT:
        raise LedgerUnclear(
            f"the ledger was written in format {int(written)}, and this program reads formats up to {FORMAT};"
            " install the newer lakehouse-ingest that wrote it"
        )
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(base64.b85decode(packed), LARGEST)
        if not unpacking.eof:
            raise _unreadable(ValueError(f"it is cut, or longer than {LARGEST >> 20} MiB"))
        return json.loads(body)
    except (ValueError, RecursionError, zlib.error) as failure:
        raise _unreadable(failure) from failure


def _unreadable(failure: Exception) -> LedgerUnclear:
    return LedgerUnclear(
        f"a mark of the ledger can't be read ({type(failure).__name__}), because another program changed or cut it;"
        " roll the table back to a snapshot before that"
    )


def _runs(keys: list[tuple[str, int]], topic: str) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in (number for name, number in keys if name == topic):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _less(following: int, offset: int | None) -> int | None:
    return None if offset is None else following - offset
