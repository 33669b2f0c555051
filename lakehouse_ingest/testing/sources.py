"""What every source promises, of a topic that was filled before and rests meanwhile. Spark is not needed.

Records are read here as tasks read them: by a reader that was pickled, in shares.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from itertools import pairwise
from random import Random

from pyspark import cloudpickle

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.records import Offsets, Range, TopicPartition
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.accounting import shares
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Records, Share
from lakehouse_ingest.stages.sources import Reader, Source

GROUP = "lakehouse-ingest-suite"  # what a broker has to allow
LONG_AGO, NEVER = dt.datetime(1971, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
NOBODYS = "nobody-has-a-topic-of-this-name"
ROUNDS = 10  # of a topic that is cut anywhere


class Gap(Enum):
    """An offset without a record, such as Kafka's markers of transactions."""

    GAP = "gap"


GAP = Gap.GAP
Value = bytes | Gap | None
Place = tuple[int, int, Value]  # partition, offset, and what is there


@dataclass(frozen=True)
class Filled:
    """A topic, and of each of its partitions the values in the order of their offsets; a few there have to be.

    If the source has offsets without records, let a partition end with some of them, and a record be the first.
    """

    kind: type[Source]
    settings: SourceSettings
    topic: str
    values: Mapping[int, Sequence[Value]]

    @property
    def source(self) -> Source:
        return self.kind(self.settings, [self.topic])

    @property
    def counts(self) -> dict[TopicPartition, int]:
        return {(self.topic, number): len(values) for number, values in self.values.items()}

    @property
    def reader(self) -> Reader:
        return _in_a_task(self.source.reader(GROUP, 1))

    @cached_property
    def bounds(self) -> tuple[Offsets, Offsets]:
        return self.source.bounds()

    @cached_property
    def log(self) -> str:
        return self.source.identity().log(self.topic)

    def share(self, partition: int, start: int, end: int) -> Share:
        return Share(self.topic, partition, start, end, self.log)

    def tasks(self, per_task: int = 1_000_000, cores: int = 1) -> list[list[Share]]:
        """The whole topic, cut as a batch is cut."""
        return shares(Range(*self.bounds), self.source.identity(), per_task, cores)

    def wanted(self, asked: Iterable[Share]) -> list[Place]:
        """What is to be read of these shares, by partition and offset."""
        return [
            (share.partition, offset, value)
            for share in sorted(asked, key=lambda share: (share.partition, share.start))
            for offset in range(share.start, share.end)
            if (value := self._value(share.partition, offset)) is not GAP
        ]

    def _value(self, partition: int, offset: int) -> Value:
        low, _ = self.bounds
        return self.values[partition][offset - low[self.topic, partition]]


def the_bounds_hold_all_records_and_nothing_else(filled: Filled) -> None:
    low, high = filled.source.bounds()
    assert low.keys() == high.keys() == filled.counts.keys(), f"the partitions are {sorted(high)}"
    assert {at: high[at] - low[at] for at in high} == filled.counts, f"the bounds are {low} and {high}"
    assert filled.source.ends() == high, "at rest a reader does not get as far as the records are written"


def the_identity_stays_and_names_each_topic(filled: Filled) -> None:
    first, again = filled.source.identity(), filled.source.identity()
    assert first == again, f"{first} was {again} a moment ago"
    assert [*first.topics] == [filled.topic], f"the identity is of {[*first.topics]}"


def topics_are_found_by_their_whole_names(filled: Filled) -> None:
    source = filled.kind(filled.settings, ())
    assert source.matching(filled.topic) == [filled.topic]
    assert filled.topic in source.matching(f"{filled.topic[:2]}.*")
    assert source.matching(filled.topic[:-1]) == [], "the beginning of a name is taken for it"


def a_time_leads_to_the_first_record_since(filled: Filled) -> None:
    low, _ = filled.source.bounds()
    held = {at: low[at] for at, count in filled.counts.items() if count}
    assert {at: offset for at, offset in filled.source.since(LONG_AGO).items() if at in held} == held
    assert filled.source.since(NEVER) == {}, "partitions without a record of that time are not left out"


def every_record_is_read_once_and_as_it_was(filled: Filled) -> None:
    """All partitions by one task. Each share is read alone as well."""
    (task,) = filled.tasks()
    _check(filled, task, _read(filled.reader, task))
    for share in task:
        _check(filled, [share], list(filled.reader.read(share)))


def a_start_within_reads_what_follows(filled: Filled) -> None:
    low, high = filled.bounds
    middle = {at: (low[at] + high[at]) // 2 for at in low}
    for task in shares(Range(middle, high), filled.source.identity()):
        _check(filled, task, _read(filled.reader, task))


def tasks_follow_one_another_and_hold_their_shares(filled: Filled) -> None:
    """One process reads all of them, like a worker of Spark."""
    reader, count = filled.reader, sum(filled.counts.values())
    for per_task in {1, 2, 3, max(1, count // 2)}:
        tasks = filled.tasks(per_task, 2)
        for task in tasks:
            _check(filled, task, _read(reader, task))
        reached = sum(share.end - share.start for task in tasks for share in task)
        assert reached == count, f"of {count} offsets the tasks have {reached}"


def shares_may_be_cut_anywhere_and_read_in_any_order(filled: Filled) -> None:
    seed = Random().randrange(2**32)
    dice, reader = Random(seed), filled.reader
    for _ in range(ROUNDS):
        left = [part for share in filled.tasks()[0] for part in _cut(share, dice)]
        dice.shuffle(left)
        while left:
            task = [left.pop() for _ in range(min(len(left), dice.randint(1, 4)))]
            _check(filled, task, _read(reader, task), f"with the seed {seed} ")


def a_share_without_a_record_ends(filled: Filled) -> None:
    """Alone, and beside others."""
    low, high = filled.bounds
    empty = [filled.share(at[1], offset, offset) for at in low for offset in {low[at], high[at]}]
    gaps = [
        filled.share(number, offset, offset + 1)
        for number, values in filled.values.items()
        for offset, value in enumerate(values, low[filled.topic, number])
        if value is GAP
    ]
    for asked in ([*empty, *gaps], *([each] for each in (*empty, *gaps))):
        _check(filled, asked, _read(filled.reader, asked))


def a_reading_that_is_given_up_leaves_nothing_behind(filled: Filled) -> None:
    """A task may fail in the middle, and its shares are read again by the same process."""
    reader, (task,) = filled.reader, filled.tasks()
    for _ in range(3):
        given_up = iter(reader.read_all(task))
        assert next(given_up, None), "the reader gives nothing"
        del given_up
        _check(filled, task, _read(reader, task))


def a_reader_in_use_can_be_sent_to_a_task(filled: Filled) -> None:
    reader, (task,) = filled.source.reader(GROUP, 2), filled.tasks()
    _check(filled, task, _read(reader, task))
    _check(filled, task, _read(_in_a_task(reader), task))


def it_keeps_to_the_partitions_that_it_is_told(filled: Filled) -> None:
    number = max(number for number, values in filled.values.items() if values)
    settings = filled.settings.model_copy(update={"partitions": {filled.topic: (number,)}})
    only = Filled(filled.kind, settings, filled.topic, {number: filled.values[number]})
    low, high = only.source.bounds()
    assert low.keys() == high.keys() == only.counts.keys(), f"the partitions are {sorted(high)}"
    assert only.source.ends() == high
    assert only.source.since(LONG_AGO) == low
    (task,) = only.tasks()
    _check(only, task, _read(only.reader, task))


def a_hint_may_be_left_and_a_probe_answers(filled: Filled) -> None:
    filled.source.publish(filled.source.ends(), GROUP)
    said = filled.source.probe(GROUP)
    assert said, "the probe says nothing"
    assert "\n" not in said, f"the probe says more than a sentence: {said}"


def a_topic_that_is_not_there_is_one_sentence(filled: Filled) -> None:
    source = filled.kind(filled.settings, [NOBODYS])  # it waits for nobody
    asked: tuple[Callable[[], object], ...] = (
        source.ends,
        source.bounds,
        partial(_read, source.reader(GROUP, 1), [Share(NOBODYS, 0, 0, 1)]),
    )
    for ask in asked:
        said = _refusal(ask, "of a topic that is not there")
        assert NOBODYS in said, f"the sentence does not name the topic: {said}"


def what_the_log_does_not_hold_is_an_error_and_no_end(filled: Filled) -> None:
    """A task must not take a record as read that the source can't give. A source may wait for it for a while."""
    _, high = filled.bounds
    (_, number), end = max((at, high[at]) for at, count in filled.counts.items() if count)
    for start, beyond in ((end - 1, end + 1), (end + 1_000, end + 1_001)):
        asked = [filled.share(number, start, beyond)]
        _refusal(partial(_read, filled.reader, asked), f"of {asked}, though the log ends at {end},")


Check = Callable[[Filled], None]
CHECKS: tuple[Check, ...] = (
    the_bounds_hold_all_records_and_nothing_else,
    the_identity_stays_and_names_each_topic,
    topics_are_found_by_their_whole_names,
    a_time_leads_to_the_first_record_since,
    every_record_is_read_once_and_as_it_was,
    a_start_within_reads_what_follows,
    tasks_follow_one_another_and_hold_their_shares,
    shares_may_be_cut_anywhere_and_read_in_any_order,
    a_share_without_a_record_ends,
    a_reading_that_is_given_up_leaves_nothing_behind,
    a_reader_in_use_can_be_sent_to_a_task,
    it_keeps_to_the_partitions_that_it_is_told,
    a_hint_may_be_left_and_a_probe_answers,
    a_topic_that_is_not_there_is_one_sentence,
    what_the_log_does_not_hold_is_an_error_and_no_end,
)


def _in_a_task(reader: Reader) -> Reader:
    """As Spark brings it there."""
    found: Reader = cloudpickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]
    return found


def _read(reader: Reader, asked: Sequence[Share]) -> list[Records]:
    return list(reader.read_all(asked))


def _cut(share: Share, dice: Random) -> list[Share]:
    """The share in a few parts, some of which may be empty."""
    cuts = sorted(dice.randint(share.start, share.end) for _ in range(dice.randint(0, 3)))
    return [Share(share.topic, share.partition, *each, share.log) for each in pairwise([share.start, *cuts, share.end])]


def _check(filled: Filled, asked: Sequence[Share], found: Sequence[Records], what: str = "") -> None:
    """Exactly the records of these shares, and those of each partition in their order."""
    of = {(share.topic, share.partition): share for share in asked}
    rows: list[Place] = []
    for records in found:
        assert records.rows.schema == RECORD_SCHEMA, f"{what}the schema is {records.rows.schema}"
        assert not records.rows["timestamp"].null_count, f"{what}a record has no timestamp"
        share = of.get((records.topic, records.partition))
        assert share, f"{what}{asked} gives records of {records.topic} {records.partition}"
        assert records.log == share.log, f"{what}{share} gives records of the log {records.log!r}"
        places = zip(records.rows["offset"].to_pylist(), records.rows["value"].to_pylist(), strict=True)
        rows += [(records.partition, *each) for each in places]
    for number in {share.partition for share in asked}:
        offsets = [offset for partition, offset, _ in rows if partition == number]
        in_order = [share for share in asked if share.partition == number]
        if all(before.end <= after.start for before, after in pairwise(in_order)):
            assert offsets == sorted(offsets), f"{what}{asked} gives the offsets {offsets} of partition {number}"
    by_place = sorted(rows, key=lambda row: row[:2])
    assert by_place == filled.wanted(asked), f"{what}{asked} gives {by_place}"


def _refusal(ask: Callable[[], object], what: str) -> str:
    """The sentence of the error, which has to be one that says who must act."""
    try:
        found = ask()
    except (TryAgain, SettingsRefused) as refusal:
        return str(refusal)
    except LakehouseError as other:
        raise AssertionError(f"{what} it raises {type(other).__name__}") from other
    raise AssertionError(f"{what} it says {found}")
