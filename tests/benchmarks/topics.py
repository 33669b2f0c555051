"""The topics of the bench. Each is filled once, and all systems that need it read the same records."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from tests.benchmarks.systems import BEGINS_MS, NUMBER, TIME, event
from tests.services.kafka import create_topic, produce

PARTITIONS = 6
DAY_MS = 86_400_000
BROKEN_EVERY, LATE_EVERY, NEW_IN = 100, 1_000, 10
# The share of the events after which a new field comes, in one of ten events from then on.
NEW_FIELDS = (0.375, 0.875)
MISFITS_FROM = 0.3  # before, a field may still get a type that fits its misfits

Made = Callable[[int, int], tuple[bytes, bytes]]
"""Key and value of an event, by its number and the number of all."""


def messy(number: int, count: int) -> tuple[bytes, bytes]:
    """One in a hundred is broken, one in a thousand up to twenty days late, and now and then there is a new field."""
    key, value = event(number, count)
    if is_broken(number):
        return key, _broken(number, count, value)
    if number % LATE_EVERY == LATE_EVERY // 3:
        late = _time(value) - number // LATE_EVERY % 20 * DAY_MS
        value = value.replace(b'"%s":%d' % (TIME.encode(), _time(value)), b'"%s":%d' % (TIME.encode(), late))
    if number % NEW_IN == 0:
        for place, share in enumerate(NEW_FIELDS):
            if number >= count * share:
                value = value[:-1] + b',"new_%d":"value %d"}' % (place, number % 50)
    return key, value


def is_broken(number: int) -> bool:
    return number % BROKEN_EVERY == BROKEN_EVERY // 2


def _broken(number: int, count: int, value: bytes) -> bytes:
    match number // BROKEN_EVERY % 3:
        case 0:
            return value[: len(value) // 2]
        case 1:
            return b"[%d]" % number
        case _ if number < count * MISFITS_FROM:
            return value[: len(value) // 2]
        case _:
            return value.replace(b'"%s":%d' % (NUMBER.encode(), number), b'"%s":"number"' % NUMBER.encode())


def _time(value: bytes) -> int:
    """It is the first field."""
    return int(value[value.index(b":") + 1 : value.index(b",")])


def one_day(number: int, count: int) -> tuple[bytes, bytes]:
    """All hours of one day, in no order: each batch has rows of 24 hours."""
    key, value = event(number, count)
    return key, value.replace(b"%d" % _time(value), b"%d" % (BEGINS_MS + number * 7_919_317 % DAY_MS), 1)


KINDS: Mapping[str, Made] = {"plain": event, "messy": messy, "one_day": one_day}


@dataclass
class Topics:
    """Fills a topic when somebody asks for it first."""

    brokers: str
    _filled: set[str] = field(default_factory=set)

    def of(self, kind: str, count: int) -> str:
        """The name of a topic with so many events."""
        return self.filled(f"{kind}-{count}", KINDS[kind], count)

    def filled(self, name: str, made: Made, count: int, partitions: int = PARTITIONS) -> str:
        if name not in self._filled:
            began = monotonic()
            create_topic(self.brokers, name, partitions)
            sent = produce(
                self.brokers,
                name,
                ((*made(number, count), None, None, number % partitions) for number in range(count)),
                {"linger.ms": 50},
            )
            if sent != count:
                raise RuntimeError(f"the broker has {sent} of {count} events")
            print(f"{name}: {count:,} events in {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            self._filled.add(name)
        return name
