"""`plan` says what `run` does to the catalog, and does nothing itself."""

import os
from collections import Counter
from random import SystemRandom
from typing import Any

import pytest

import catalog
from lakehouse_ingest.rehearsing import Foresight, foresee
from lakehouse_ingest.session import LAKE
from lakehouse_ingest.settings import Settings
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.random_topics import RandomTopic, drawn

pytestmark = pytest.mark.live

TOPICS = int(os.environ.get("LAKEHOUSE_TEST_TOPICS", "4"))
SEED = int(os.environ.get("LAKEHOUSE_TEST_SEED") or SystemRandom().randrange(10**6))
# What the landing itself notes in a table's properties.
BOOKKEEPING = ("lakehouse.table.", "lakehouse.epoch.", "published.")


def states(bench: Bench, topic: str) -> dict[str, catalog.TableState]:
    lake = catalog.connect(catalog.Connection(bench.uri))
    if not catalog.has_namespace(lake, f"ns_{topic}"):
        return {}
    return {name: catalog.load(lake, name) for name in catalog.names_in(lake, f"ns_{topic}")}


def shape(state: catalog.TableState) -> dict[str, Any]:
    """What plan speaks of."""
    told = {key: text for key, text in state.properties.items() if not key.startswith(BOOKKEEPING)}
    return {
        "columns": state.columns,
        "partitions": state.partitions,
        "sort": state.sort,
        "properties": told,
        "version": state.format_version,
        "identifier": state.identifier,
    }


def planned(bench: Bench, topic: str, settings: Settings, sample: int | None = None) -> Foresight:
    """Nothing at all is another afterwards."""
    before = states(bench, topic)
    found = foresee(bench.pipeline(settings), sample)
    after = states(bench, topic)
    assert {name: each.metadata_location for name, each in after.items()} == {
        name: each.metadata_location for name, each in before.items()
    }
    assert bench.lake.namespace_exists(f"ns_{topic}") == bool(before)
    return found


def settings_of(bench: Bench, topic: str, drawn: RandomTopic) -> Settings:
    plain = bench.settings(topic, stream=drawn.stream).model_dump(exclude_unset=True)
    plain["streams"][0]["tables"] = drawn.tables
    return Settings.model_validate(plain)


def outcomes(bench: Bench, topic: str) -> Counter[str]:
    """What the batch record says of all batches so far."""
    found: Counter[str] = Counter()
    for row in bench.rows(f"ns_{topic}.lakehouse_batches"):
        found.update(dict(row["reasons"] or ()))
        for part in row["partitions"] or ():
            found.update({outcome: part[outcome] for outcome in ("landed", "filtered")})
    return +found


@pytest.mark.parametrize("seed", range(SEED, SEED + TOPICS))
def test_a_plan_of_all_is_what_a_run_then_does(bench: Bench, seed: int) -> None:
    """Of any topic: the tables as they would be are the tables as they are afterwards, and so are the dead."""
    print(f"LAKEHOUSE_TEST_SEED={seed}")
    topic, random = f"random_{seed}", drawn(seed)
    create_topic(bench.broker, topic, 1 + seed % 2)
    settings = settings_of(bench, topic, random)
    if random.others:
        bench.spark.sql(f"CREATE NAMESPACE {LAKE}.ns_{topic}")
        bench.spark.sql(f"CREATE TABLE {LAKE}.ns_{topic}.events ({random.others}) PARTITIONED BY (days(event_time))")
    if random.earlier:
        produce(bench.broker, topic, [(None, value) for value in random.earlier])
        bench.ingest(settings)
    produce(bench.broker, topic, [(None, value) for value in random.values])
    counted = outcomes(bench, topic) if random.earlier else Counter[str]()

    found = planned(bench, topic, settings)
    (stream,) = found.streams
    if stream.refusal:
        with pytest.raises(type(stream.refusal)) as refusal:
            bench.ingest(settings)
        assert str(refusal.value) == str(stream.refusal)
        return
    bench.ingest(settings)
    assert stream.whole
    after = states(bench, topic)
    foreseen = {each.after.name: each.after for each in found.tables}
    foreseen |= {name: each for name, each in after.items() if name not in foreseen and not name.endswith("_of")}
    assert {name: shape(each) for name, each in foreseen.items()} == {name: shape(each) for name, each in after.items()}
    tally = stream.seen.tally
    told = Counter(tally.dead) + Counter({each: tally.total(each) for each in ("landed", "filtered")})
    assert +told == outcomes(bench, topic) - counted
    if seed % 3 == 0:
        again = planned(bench, topic, settings)
        assert not again.changed
        assert again.streams[0].there == 0
