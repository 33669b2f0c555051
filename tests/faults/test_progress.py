"""Killed again and again, on a topic of many types: however short the time, each start leaves the next one less to do.

In the long form every so many seconds, on 600 types, until `complete` has grown a few times; then all is there once.
"""

import json
import os
import time
from collections import Counter

import pytest

from tests.services.dice import Dice
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import Pipelines, Running, settings_text, until
from tests.services.readers import Reader
from tests.services.records import check_batch_record, kind_of

TYPES, EACH, PARTITIONS = 600, 40, 3
PERIODS = [float(each) for each in (os.environ.get("LAKEHOUSE_TEST_PERIODS") or "20,27,40").split(",")]
GROWTHS = 3  # of `complete`, to be seen at each of them
MOST_KILLS = 30
DRAINING = 1500.0
pytestmark = [pytest.mark.live, pytest.mark.faults]


@pytest.mark.long
@pytest.mark.timeout(600 + DRAINING + MOST_KILLS * sum(PERIODS))
def test_a_kill_every_few_seconds_keeps_nothing_from_landing(
    broker: str, rest_uri: str, pipelines: Pipelines, dice: Dice
) -> None:
    topic = f"progress-{dice.randrange(10**9)}"
    namespace = topic.replace("-", "_")
    create_topic(broker, topic, PARTITIONS)
    kinds = [f"kind_{number}" for number in range(TYPES)]
    events = [(number % PARTITIONS, kind) for number, kind in enumerate(kinds * EACH)]
    dice.shuffle(events)
    produce(
        broker, topic, ((None, json.dumps({"type": kind, "n": 1}).encode(), None, None, part) for part, kind in events)
    )
    sent = Counter(part for part, _ in events)
    produced = Counter((topic, part, offset) for part, count in sent.items() for offset in range(count))
    settings = settings_text(
        topic, broker, rest_uri, namespace, max_records=1_000_000, type_from="field:type", table='table = "{type}"'
    ).replace("[[streams.tables]]", f"max_tables = {TYPES}\n[[streams.tables]]")
    reader = Reader(rest_uri, namespace)

    for period in PERIODS:
        seen = [complete(reader)]
        while len({*seen}) <= GROWTHS and len(seen) <= MOST_KILLS and seen[-1] < len(events):
            killed_after(period, pipelines.start(settings))
            seen.append(complete(reader))
        print(f"a kill every {period:.0f} s: complete {seen}")
        assert len({*seen}) > GROWTHS or seen[-1] == len(events), (period, seen)

    began = time.monotonic()
    pipelines.drain(settings, DRAINING)
    print(f"the rest in {time.monotonic() - began:.0f} s")
    assert reader.by_pyiceberg(*kinds, "dead_letters") == produced
    check_batch_record(reader, produced)


def killed_after(seconds: float, running: Running) -> None:
    began = time.monotonic()
    assert not until(lambda: running.ended, seconds), running.tail()
    assert time.monotonic() - began >= seconds
    running.kill()
    assert until(lambda: not running.family(), 60), "a JVM lives on"


def complete(reader: Reader) -> int:
    """Offsets below which all has landed, as the batch record has it."""
    if not reader.exists("lakehouse_batches"):
        return 0
    ends: dict[int, int] = {}
    for row in kind_of(reader, "batch"):
        for part in row["partitions"]:
            ends[part["partition"]] = max(part["end"], ends.get(part["partition"], 0))
    return sum(ends.values())
