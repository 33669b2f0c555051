"""`lakehouse-ingest demo`: a broker, a catalog, a producer and the pipeline on this machine, for a minute.

The pipeline is the one that `run` runs, in this process; only who watches it differs. A second run in the same
folder goes on where the first one ended.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from time import monotonic, sleep
from typing import Any

from rich.text import Text

from lakehouse_ingest.cli.demo import proof, report
from lakehouse_ingest.cli.demo.events import BROKEN_EVERY, HEARTBEAT, LATER, READING
from lakehouse_ingest.cli.demo.plant import Plant, create_topic
from lakehouse_ingest.cli.demo.proof import Run
from lakehouse_ingest.cli.demo.reading_back import ALARMS, BATCHES, NAMESPACE, TOPIC, read_back
from lakehouse_ingest.cli.demo.screen import Counts, Screen
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.server import Server
from lakehouse_ingest.environment.jars import KINDS, cache_folder, ensure, present
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.signals import stopping
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import LakehouseError, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.operations.verify.streams import of_streams
from lakehouse_ingest.pipeline.assembly import Running, opened
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import Settings, load_settings
from lakehouse_ingest.stages.sources import Source, of_stream
from lakehouse_ingest.tables import Connection, PipelineTables
from lakehouse_ingest.tables.clients import embedded_token

RATE, RATE_KEPT = 800, 50  # events a second
LOOK_S = 0.25
LINE_KEPT_S = 60.0  # how often a line is written where there is no terminal
PATIENCE_S, LEADER_S, TOLD_S = 120.0, 15.0, 5.0
# Within a minute the second compiler and a parallel collector cost more than they gain.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

PIPELINE = """\
# The pipeline of `lakehouse-ingest demo`, as it ran.
name = "{namespace}"

[catalog]
path = {warehouse}
namespace = "{namespace}"

[source]
brokers = "{brokers}"

[[streams]]
topics = ["{topic}"]
type_from = "field:type"
keep_types = "^(?!{filtered}$)"   # counted as filtered, and not kept
every = "3s"

[[streams.tables]]
table = "{reading}"
types = ["{reading}"]
event_time = "ts_ms"
event_time_unit = "ms"
partition_by = ["day(event_time)"]
columns = [
    {{ name = "number", type = "long" }},
    {{ name = "ts_ms", type = "long" }},
    {{ name = "station", type = "string", required = true }},
    {{ name = "location", type = "string" }},
    {{ name = "temperature", type = "double" }},
    {{ name = "humidity", type = "double" }},
    {{ name = "battery", type = "uint8" }},
    {{ name = "ok", type = "boolean" }},
]

[[streams.tables]]
table = "{{type}}"                # one for every other type, with columns from the data
event_time_unit = "ms"
partition_by = ["day(event_time)"]

[ledger]
batch_every = "0s"              # with each batch: so the counts in it are complete, even after SIGKILL

[retry]
limit = "30s"
"""
KEPT_RUNNING = """\

Everything is left running, with {rate} events a second, until Ctrl-C:

  broker     {brokers}, topic {topic}
  catalog    {uri}, namespace {namespace}
  warehouse  {warehouse}

What to type next, in another terminal{first}:

  DuckDB     INSTALL iceberg; LOAD iceberg;
             ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}',
               TOKEN '{token}', ACCESS_DELEGATION_MODE 'none');
             SELECT location, count(*) FROM lake.{table} GROUP BY ALL;

  pyiceberg  export PYICEBERG_CATALOG__DEFAULT__TOKEN={token}
             pyiceberg --uri {uri} describe {table}

  A type of your own, and its table some seconds later:

    python -c 'import json; from confluent_kafka import Producer; \\
      p = Producer({{"bootstrap.servers": "{brokers}"}}); \\
      p.produce("{topic}", json.dumps({{"type": "visit", "who": "you"}})); \\
      p.flush()'

    pyiceberg --uri {uri} describe {namespace}.visit

  A pipeline of your own: "mine" for "{topic}" above, and

    lakehouse-ingest run --topics mine --brokers {brokers} \\
      --catalog-uri {uri} --warehouse {quoted}
"""


class DoesNotAddUp(LakehouseError):
    """The promise that the demo is there to show was not kept."""


class Interrupted(LakehouseError):
    exit_code = 130  # what a shell says of Ctrl-C


@dataclass(frozen=True)
class DemoFolder:
    """What the demo stands on."""

    folder: Path
    warehouse: Path
    brokers: str
    uri: str
    token: str = field(repr=False)
    settings: Settings
    source: Source


def demo(folder: Path, seconds: float, *, keep: bool = False, jars: Path | None = None) -> None:
    """Raises when the counts don't add up."""
    screen = Screen(Terminal())
    find_java()
    _fetch(screen.console, jars)
    screen.begin()
    screen.say("starting a Kafka broker and an Iceberg REST catalog")
    with ExitStack() as stack:
        here = _prepared(folder.absolute(), jars, stack)
        screen.say(f"broker at {here.brokers}, catalog at {here.uri}")
        begins = _ends(here.source)
        plant = _plant(here, screen, begins, seconds).start()
        stack.callback(plant.stop)
        screen.counts.producers.append(plant)
        screen.seconds = seconds
        screen.say(f"producing {RATE} events a second for {seconds:g} s, 1 in {BROKEN_EVERY} broken; Spark starts")
        with (
            screen,
            opened(here.settings, RunOptions(jars=jars)) as running,
            stopping(running.stop),
            _ingesting(running, screen) as work,
        ):
            screen.say(f"Spark {running.spark.version} is there, the pipeline starts")
            ends, took = _through(here, plant, screen, lambda until: _watch(running, work, screen, until))
            if not keep:
                running.stop.set()
                work.result()
            screen.say("all of them are in tables; now to read those back")
            screen.end()
            _report(screen.console, here, _run(here, plant, screen.counts, begins, ends, took))
            if keep:
                _stay(running, work, screen, here, plant)
    screen.console.print(
        f"Left in {here.folder}: warehouse, pipeline.toml, demo.json; no process, no open port.\n"
        f"To query it{_first()}: lakehouse-ingest catalog serve --warehouse {quote(str(here.warehouse))}\n"
        f"{screen.elapsed:.0f} s in all.",
        soft_wrap=True,
    )


def _first() -> str:
    """How the words of a terminal are found that knows nothing of our virtual environment."""
    activate = Path(sys.executable).with_name("activate")
    return f" (first: . {quote(os.path.relpath(activate))})" if activate.exists() else ""


# -- what it stands on -------------------------------------------------------------------------------------------------


def _fetch(console: Terminal, jars: Path | None) -> None:
    """Says what is downloaded, how much, and where to, before it is."""
    if jars is not None:
        console.print(f"Nothing to download: the jars are in {jars}.", soft_wrap=True)
        return
    missing = [kind for kind in KINDS if not present(kind)]
    if missing:
        names = {"spark": "Spark", "catalog": "the catalog", "broker": "the broker"}
        parts = ", ".join(f"{KINDS[kind]} MB for {names[kind]}" for kind in missing)
        said = f"To be downloaded, once: {sum(KINDS[kind] for kind in missing)} MB of jars ({parts})."
    else:
        said = f"Nothing to download: the {sum(KINDS.values())} MB of jars are there."
    console.print(f"{said}\nKept in {cache_folder()}; lakehouse-ingest clean removes them.", soft_wrap=True)
    for kind in missing:
        ensure(kind)


def _prepared(folder: Path, jars: Path | None, stack: ExitStack) -> DemoFolder:
    warehouse = folder / "warehouse"
    servers = (EmbeddedBroker(folder / ".lakehouse-broker", jars=jars), EmbeddedCatalog(warehouse, jars=jars))
    for server in servers:  # each is ended, whatever becomes of the other
        stack.callback(server.stop)
    with ThreadPoolExecutor(len(servers)) as side_by_side:
        brokers, uri = side_by_side.map(Server.start, servers)
    create_topic(brokers, TOPIC)
    settings = load_settings(_settings_file(folder, warehouse, brokers), _here(uri), environment={})
    token = embedded_token(settings.catalog, uri)
    return DemoFolder(folder, warehouse, brokers, uri, token, settings, of_stream(settings.source, settings.streams[0]))


def _ends(source: Source) -> Offsets:
    """A topic that was made a moment ago has no leader yet."""
    deadline = monotonic() + LEADER_S
    while True:
        try:
            return source.ends()
        except TryAgain:
            if monotonic() > deadline:
                raise
        sleep(LOOK_S)


def _settings_file(folder: Path, warehouse: Path, brokers: str) -> Path:
    path = folder / "pipeline.toml"
    # A basic string of TOML is written like one of JSON.
    names = {"namespace": NAMESPACE, "topic": TOPIC, "reading": READING, "filtered": HEARTBEAT, "brokers": brokers}
    path.write_text(PIPELINE.format(warehouse=json.dumps(str(warehouse)), **names), encoding="utf-8")
    return path


def _here(uri: str) -> dict[str, Any]:
    """What is not in the file: the catalog is ours already, the log is for errors, a minute is short."""
    return {
        "catalog": {"uri": uri},
        "log": {"level": "error", "format": "text"},
        "spark": {"options": {"spark.driver.defaultJavaOptions": SHORT_LIVED}},
    }


def _plant(here: DemoFolder, screen: Screen, begins: Offsets, seconds: float) -> Plant:
    """Alarms say what they have said in earlier runs, and from the middle on something new."""
    lake = _lake(here)
    state = lake.find(ALARMS)
    columns = {column.name for column in state.columns} if state else set()

    def ready() -> bool:
        """Once there is a table, or it would be a field like any other of the first batch."""
        with suppress(TryAgain):
            return lake.find(ALARMS) is not None
        return False

    return Plant(
        here.brokers,
        TOPIC,
        RATE,
        sum(begins.values()),
        [name for name in LATER if name in columns],
        seconds=seconds,
        new=next((name for name in LATER if name not in columns), None),
        ready=ready,
        tell=screen.say,
    )


# -- while it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def _ingesting(running: Running, screen: Screen) -> Iterator[Future[None]]:
    """The pipeline in a thread of its own; left, it has landed what was under way."""
    with running.watch.heard_by(screen), ThreadPoolExecutor(1, "pipeline") as pool:
        work = pool.submit(running.pipeline.run)
        try:
            yield work
        finally:
            running.stop.set()


def _through(
    here: DemoFolder, plant: Plant, screen: Screen, wait: Callable[[Callable[[], bool]], None]
) -> tuple[Offsets, dict[str, float]]:
    """To the end of producing and of landing it; the topic's ends, and how long it took."""
    began, held = screen.elapsed, _complete(here)
    wait(lambda: not plant.running)
    plant.stop()
    ends, produced = _ends(here.source), screen.elapsed
    screen.say(f"{plant.made.acknowledged:,} events produced; the last of them are being written")
    wait(lambda: _reached(_complete(here), ends))
    landed = screen.elapsed
    # The event of the last batch comes a moment after the batch is done.
    due = sum(end - held.get(at, 0) for at, end in ends.items())
    wait(lambda: screen.counts.received >= due or screen.elapsed > landed + TOLD_S)
    return ends, {"until_spark": began, "ingesting": landed - began, "last_events": landed - produced, "all": landed}


def _watch(running: Running, work: Future[None], screen: Screen, until: Callable[[], bool]) -> None:
    """Returns when it is so; raises when asked to stop, when the pipeline failed, and when nothing moves."""
    counts = screen.counts
    batches, since = len(counts.batches), screen.elapsed
    while not until():
        if len(counts.batches) > batches:
            batches, since = len(counts.batches), screen.elapsed
        if screen.elapsed - since > PATIENCE_S:
            raise TryAgain(
                f"no batch was committed for {PATIENCE_S:.0f} s: run with --debug, or see the log of the broker"
            )
        if running.stop.wait(LOOK_S):
            raise Interrupted("stopped before its end; what has landed stays, and the same command goes on from there")
        if work.done():
            work.result()
            raise TryAgain("the pipeline has ended by itself")
        screen.line()


def _lake(here: DemoFolder) -> PipelineTables:
    return PipelineTables(Connection(here.uri, token=here.token), NAMESPACE)


def _complete(here: DemoFolder) -> Offsets:
    """How far all tables are, from the catalog: what any next start would begin with."""
    state = _lake(here).find(BATCHES)
    summaries = (snapshot.summary for snapshot in state.ancestors()) if state else ()
    mark = marks.newest(summaries, NAMESPACE)
    return mark.held() if mark else {}


def _reached(complete: Offsets, ends: Offsets) -> bool:
    return all(complete.get(at, 0) >= end for at, end in ends.items())


def _run(
    here: DemoFolder, plant: Plant, counts: Counts, begins: Offsets, ends: Offsets, took: Mapping[str, float]
) -> Run:
    return Run(
        folder=here.folder,
        warehouse=here.warehouse,
        uri=here.uri,
        token=here.token,
        made=plant.made,
        begins=begins,
        ends=ends,
        batches=tuple(counts.batches),
        seconds=took,
    )


def _report(console: Terminal, here: DemoFolder, run: Run) -> None:
    verdict = of_streams(here.settings, here.uri)[0].verdict
    found = read_back(run.uri, run.token, run.begins)
    wrong = proof.problems(run, verdict, found)
    told = proof.as_json(run, verdict, found, wrong)
    written = proof.write(run, told)
    console.print()
    report.show(console, run, verdict, found, told)
    if wrong:
        raise DoesNotAddUp(f"the counts do not add up: {'; '.join(wrong)} (see {written})")


def _stay(running: Running, work: Future[None], screen: Screen, here: DemoFolder, before: Plant) -> None:
    """Until Ctrl-C."""
    said = KEPT_RUNNING.format(
        rate=RATE_KEPT,
        first=_first(),
        brokers=here.brokers,
        uri=here.uri,
        token=here.token,
        warehouse=here.warehouse,
        quoted=quote(str(here.warehouse)),
        topic=TOPIC,
        namespace=NAMESPACE,
        table=ALARMS,
    )
    screen.console.print(Text(said), soft_wrap=True)
    number = before.made.first + before.made.acknowledged
    plant = Plant(here.brokers, TOPIC, RATE_KEPT, number, before.later).start()
    screen.counts.producers.append(plant)
    screen.seconds, screen.every = 0.0, LINE_KEPT_S
    try:
        with screen, suppress(Interrupted):
            _watch(running, work, screen, lambda: not plant.running)
    finally:
        plant.stop()
        screen.end()
    work.result()
