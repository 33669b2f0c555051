"""Kills again and again before a batch is committed: each start takes less until one commits, and `complete` grows.

In the long form there is a kill every few seconds, on a topic of 600 types. In the end every record is there once.
"""

import json
import os
import time
from collections import Counter

import pytest

from lakehouse_ingest.fail_points import VARIABLE, FailPoint
from tests.services.dice import Dice
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import Pipelines, Running, settings_text, until
from tests.services.readers import Reader
from tests.services.records import check_batch_record, kind_of

TYPES, EACH, PARTITIONS = 600, 40, 3
PERIODS = [float(each) for each in (os.environ.get("LAKEHOUSE_TEST_PERIODS") or "20,27,40").split(",")]
BY_TYPE = 'table = "{type}"'
PATIENCE = 180.0
GROWTHS = 3  # of `complete`, to be seen at each of them
MOST_KILLS = 30
DRAINING = 1500.0
pytestmark = [pytest.mark.live, pytest.mark.faults]


class TestKilledStarts:
    @pytest.mark.timeout(400)
    def test_at_their_third_table_take_less_until_a_batch_is_committed(
        self, bench: Bench, pipelines: Pipelines, dice: Dice
    ) -> None:
        """Eight types, and a worker that is always killed at its third table. So only batches for two tables
        succeed."""
        topic, types = f"third-{dice.randrange(10**9)}", 8
        namespace = topic.replace("-", "_")
        create_topic(bench.broker, topic)
        produce(
            bench.broker, topic, ((None, json.dumps({"type": f"kind_{n % types}"}).encode()) for n in range(4 * types))
        )
        settings = settings_text(topic, bench.broker, bench.uri, namespace, type_from="field:type", table=BY_TYPE)
        reader, seen = Reader(bench.uri, namespace), list[int]()
        for _ in range(4):
            running = pipelines.start(settings, environment={VARIABLE: f"{FailPoint.IN_TASK}:3+0"})
            assert until(running.is_struck, PATIENCE), running.tail()
            running.kill()  # before it starts again by itself
            assert until(lambda: not running.family(), 60), "a process lives on"  # noqa: B023 - called at once
            seen.append(complete(reader))
        # 32 records, 8 and 2: the first of these to land are two. The start after it begins with as many.
        assert seen == [0, 0, 2, 4]
        drained(bench, settings)
        names = [f"kind_{number}" for number in range(types)]
        assert reader.by_pyiceberg(*names, "dead_letters") == Counter((topic, 0, n) for n in range(4 * types))

    @pytest.mark.long
    @pytest.mark.timeout(600 + DRAINING + MOST_KILLS * sum(PERIODS))
    def test_every_few_seconds_still_make_progress(
        self, broker: str, rest_uri: str, pipelines: Pipelines, dice: Dice
    ) -> None:
        topic = f"progress-{dice.randrange(10**9)}"
        namespace = topic.replace("-", "_")
        create_topic(broker, topic, PARTITIONS)
        kinds = [f"kind_{number}" for number in range(TYPES)]
        events = [(number % PARTITIONS, kind) for number, kind in enumerate(kinds * EACH)]
        dice.shuffle(events)
        produce(
            broker,
            topic,
            ((None, json.dumps({"type": kind, "n": 1}).encode(), None, None, part) for part, kind in events),
        )
        sent = Counter(part for part, _ in events)
        produced = Counter((topic, part, offset) for part, count in sent.items() for offset in range(count))
        settings = settings_text(
            topic, broker, rest_uri, namespace, max_records=1_000_000, type_from="field:type", table=BY_TYPE
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
