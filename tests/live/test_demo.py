"""The demo keeps its promise, leaves nothing running, and its proof can fail."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakehouse_ingest.cli.demo import reading_back
from lakehouse_ingest.cli.demo.events import ALARM, LATER, READING, Made
from lakehouse_ingest.cli.demo.plant import PARTITIONS
from lakehouse_ingest.cli.demo.proof import Run, problems
from lakehouse_ingest.cli.demo.reading_back import ALARMS, DEAD, READINGS, Found, Outcome, Since
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.claim import alive, free
from lakehouse_ingest.operations.verify.findings import PROVEN, Finding, FindingKind, StreamVerdict
from tests.services.doors import client, known, token_at
from tests.services.pipelines import until

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "lakehouse_ingest", "demo")
MARK = "STARTED_FOR"
PATIENCE_S = 120.0
TRIES = 10


def demo(folder: Path) -> dict[str, Any]:
    """Runs it to its end; what it left in demo.json."""
    words = [*DEMO, "--seconds", "6", "--folder", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=marked(folder), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.partition("What became")[2].partition("Left in")[0].splitlines())) <= 80
    told: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    return told


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """In a group of processes of its own, which Ctrl-C reaches as a whole."""
    return subprocess.Popen(
        [*DEMO, *words, "--folder", str(folder)],
        cwd=ROOT,
        env=marked(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def servers(folder: Path) -> tuple[EmbeddedCatalog, EmbeddedBroker]:
    return EmbeddedCatalog(folder / "warehouse"), EmbeddedBroker(folder / ".lakehouse-broker")


def assert_nothing_runs(folder: Path, seconds: float = 0) -> None:
    """No process that was started for this folder, and neither of those that served it."""
    deadline = time.monotonic() + seconds
    while left := [entry.name for entry in Path("/proc").glob("[0-9]*") if started_for(folder, entry)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    for server in servers(folder):
        note = server.claim.read()
        assert note is not None
        # Its port may be another's by now: there are more tests than this one.
        assert not alive(note.pid)
        assert not alive(note.java)


def started_for(folder: Path, process: Path) -> bool:
    """By its environment, which children of children inherit."""
    try:
        return f"{MARK}={folder}\0".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def marked(folder: Path) -> dict[str, str]:
    return {**os.environ, MARK: str(folder)}


@contextmanager
def served_once_free(warehouse: Path, port: int, jars: Path | None) -> Iterator[EmbeddedCatalog]:
    """A neighbour among the tests may have the usual port, or take it while Java starts: then another is chosen."""
    note = EmbeddedCatalog(warehouse, jars=jars).claim.read()
    assert note
    for _ in range(TRIES):
        assert until(lambda: free(port), PATIENCE_S), "a neighbour's catalog keeps it"
        catalog = EmbeddedCatalog(warehouse, jars=jars)
        with catalog:
            if catalog.uri == note.uri:
                yield catalog
                return
        catalog.claim.write(note)
    raise AssertionError("a neighbour's catalog took it each time")


def assert_both_engines_find_the_same(uri: str, told: dict[str, Any]) -> None:
    """Where DuckDB is not installed pyiceberg counts the same."""
    begins, token = {("t", number): 5 for number in range(PARTITIONS)}, token_at(uri)
    events = told["tables"]["events"]
    by_pyiceberg = reading_back._by_pyiceberg(reading_back.catalog(uri, token), events, [*begins.values()])
    by_duckdb = reading_back.read_back(uri, token, begins)
    assert by_duckdb.engine.startswith("DuckDB")
    # Of each reason some detail is shown.
    some, others = ([replace(each, detail="") for each in of.outcomes] for of in (by_pyiceberg, by_duckdb))
    assert sorted(map(str, some)) == sorted(map(str, others))


def assert_a_column_came_in_each(*runs: dict[str, Any]) -> None:
    """Another one each time; rows that are older than it have nothing there."""
    for number, told in enumerate(runs):
        appeared = told["columns_that_appeared"]
        assert [each["column"] for each in appeared] == list(LATER)[: number + 1]
        assert [each["in_this_run"] for each in appeared] == [*(False for _ in range(number)), True]
        assert all(each["rows"] > 0 and each["null"] > 0 for each in appeared)
        assert {each["column"] for each in appeared} <= set(told["columns"]["plant.alarm"])
    since = [each["since_event"] for each in runs[-1]["columns_that_appeared"]]
    assert since == sorted(since)


class TestDemo:
    @pytest.mark.live
    @pytest.mark.timeout(450)  # a minute as a rule
    def test_adds_up_in_its_first_and_in_its_second_run(self, tmp_path: Path, jars_folder: Path | None) -> None:
        first = demo(tmp_path)
        assert_nothing_runs(tmp_path)
        second = demo(tmp_path)
        assert_nothing_runs(tmp_path)
        for told in (first, second):
            run = told["counts"]["run"]
            assert told["adds_up"]
            assert run["produced"] == run["received"] == run["landed"] + run["dead"] + run["filtered"] > 4000
            assert run["made"]["filtered"] == run["filtered"] > 0
            assert set(run["tables"]) == {"plant.alarm", "plant.maintenance", "plant.reading"}
            assert sum(run["reasons"].values()) == run["dead"] > 0
            assert len(run["reasons"]) >= 7
            assert len(told["days"]) >= 3
            verified, total = told["verify"], told["counts"]["total"]
            assert (verified["code"], verified["offsets"]) == (PROVEN, total["produced"])
            assert [sum(verified["tables"].values()), verified["dead"], verified["filtered"]] == [
                total[name] for name in ("landed", "dead", "filtered")
            ]
        total = second["counts"]["total"]
        for name in ("produced", "landed", "dead", "filtered"):
            assert total[name] == first["counts"]["run"][name] + second["counts"]["run"][name]
        assert_a_column_came_in_each(first, second)

        port = int(second["catalog"].rpartition(":")[2])
        with served_once_free(tmp_path / "warehouse", port, jars_folder) as catalog:
            assert catalog.uri == second["catalog"], "the port that demo.json names is the one that stays"
            lake = load_catalog("lake", **client(known(catalog)))
            tables = [lake.load_table(name).scan(selected_fields=("_source",)) for name in second["tables"]["events"]]
            events = [row for table in tables for row in table.to_arrow().to_pylist()]
            dead = lake.load_table(second["tables"]["dead_letters"]).scan().to_arrow().to_pylist()
            assert_both_engines_find_the_same(second["catalog"], second)
        assert (len(events), len(dead)) == (total["landed"], total["dead"])
        places = [(row["_source"]["partition"], row["_source"]["offset"]) for row in (*events, *dead)]
        assert len(set(places)) == len(places) == total["produced"] - total["filtered"]
        assert {row["reason"] for row in dead} == set(total["reasons"])

    @pytest.mark.live
    @pytest.mark.long
    @pytest.mark.timeout(450)
    def test_with_keep_serves_until_ctrl_c(self, tmp_path: Path) -> None:
        with started(tmp_path, "--seconds", "3", "--keep") as running:
            assert running.stdout is not None
            assert running.stderr is not None
            said = ""
            for line in running.stdout:
                said += line
                if "_TOKEN=" in line:
                    break
            uri = said.partition("catalog    ")[2].partition(",")[0]
            token = said.partition("_TOKEN=")[2].split()[0]
            lake = load_catalog("lake", type="rest", uri=uri, token=token)
            assert ("plant", "alarm") in lake.list_tables("plant")
            os.killpg(running.pid, signal.SIGINT)
            rest = running.stdout.read()
            assert running.wait(60) == 0, rest
            assert running.stderr.read() == ""
        assert "no process, no open port" in rest
        assert_nothing_runs(tmp_path)

    @pytest.mark.live
    @pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
    def test_that_is_interrupted_leaves_no_orphan(self, stop: signal.Signals, tmp_path: Path) -> None:
        """SIGTERM while Spark starts, when it is not handled yet; Ctrl-C to the whole group, as the pipeline starts."""
        until = {signal.SIGINT: "the pipeline starts", signal.SIGTERM: "Spark starts"}[stop]
        with started(tmp_path, "--seconds", "60") as running:
            assert running.stdout is not None
            assert running.stderr is not None
            for line in running.stdout:
                if until in line:
                    break
            time.sleep(1)
            if stop is signal.SIGINT:
                os.killpg(running.pid, stop)
                assert running.wait(60) == 130
                assert running.stderr.read().count("\n") == 1
            else:
                running.send_signal(stop)
                running.wait(60)
        # Ctrl-C has ended all of them by itself; after SIGTERM each has to notice that it is alone.
        assert_nothing_runs(tmp_path, seconds=0 if stop is signal.SIGINT else 20)


# -- the proof can fail ----------------------------------------------------------------------------------------------

RUN = Run(
    folder=Path(),
    warehouse=Path(),
    uri="",
    token="",
    made=Made(
        first=23,
        acknowledged=9,
        sound=Counter({READING: 4, ALARM: 2}),
        broken=Counter({"broken_json": 2}),
        filtered=Counter({1: 1}),
        column="shift",
        since=27,
        having=1,
    ),
    begins={("plant", 0): 10, ("plant", 1): 13},
    ends={("plant", 0): 15, ("plant", 1): 17},
    batches=(),
    seconds={},
)
VERDICT = StreamVerdict(
    pipeline="plant",
    partitions=2,
    offsets=32,
    tables={ALARMS: 5, READINGS: 17},
    dead=7,
    filtered=3,
    discarded=0,
    removed=0,
    back=0,
    holes=0,
    holes_recorded=0,
    lost=0,
    unknown=0,
    duplicates=0,
    beyond=0,
    older={},
    findings=(),
    unlisted={},
)
OUTCOMES = (
    Outcome(ALARMS, None, rows=5, new=2),
    Outcome(READINGS, None, rows=17, new=4),
    Outcome(DEAD, "broken_json", rows=7, new=2, detail=""),
)
SINCE = (
    Since("shift", there=False, rows=4, first=3, last=24, new=1, new_first=24, new_last=24),
    Since("shift", there=True, rows=1, first=27, last=27, new=1, new_first=27, new_last=27),
)
RIGHT = Found("an engine", OUTCOMES, since=SINCE)


def outcome(number: int, **changes: Any) -> Found:
    return replace(
        RIGHT, outcomes=[replace(each, **changes) if each is OUTCOMES[number] else each for each in OUTCOMES]
    )


def since(*, there: bool, **changes: Any) -> Found:
    return replace(RIGHT, since=[replace(each, **changes) if each.there is there else each for each in SINCE])


class TestProblems:
    def test_are_none_if_everything_adds_up(self) -> None:
        assert problems(RUN, VERDICT, RIGHT) == []

    @pytest.mark.parametrize(
        ("verdict", "said"),
        [
            (None, "verify finds nothing of the pipeline in the catalog"),
            (
                replace(VERDICT, findings=[Finding(FindingKind.LOST, "offset 3 is in no table")]),
                "offset 3 is in no table",
            ),
            (replace(VERDICT, offsets=31), "verify has counted 31 offsets, 32 rows and filtered"),
            (replace(VERDICT, filtered=2, holes=1), "verify has counted 32 offsets, 31 rows and filtered records"),
            (replace(VERDICT, tables={ALARMS: 5}), "plant.reading: 0 rows are counted by verify, 17 by an engine"),
            (replace(VERDICT, dead=8), "plant.dead_letters: 8 rows are counted by verify, 7 by an engine"),
        ],
    )
    def test_include_what_verify_finds(self, verdict: StreamVerdict | None, said: str) -> None:
        assert said in "; ".join(problems(RUN, verdict, RIGHT))

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            (outcome(2, new=1), "2 offsets of this run are in no table, 1 events were made to be filtered"),
            (outcome(2, reason="not_utf8"), "not_utf8: 0 events were made so, 2 are dead letters"),
            (outcome(0, table=READINGS, new=3), "plant.alarm: 2 events were made so, 0 landed"),
            (since(there=True, new=2), "shift: 1 events were made with it, the first is 27; 2 rows have it"),
            (since(there=True, new_first=28), "the first is 28"),
            (since(there=False, new_last=28), "shift: event 28 has none, but it came after event 27"),
        ],
    )
    def test_include_a_record_that_is_lost_or_misjudged(self, found: Found, said: str) -> None:
        assert said in "; ".join(problems(RUN, VERDICT, found))

    def test_include_an_event_that_the_topic_does_not_hold(self) -> None:
        run = replace(RUN, made=replace(RUN.made, acknowledged=10))
        assert "10 events were produced, the topic has grown by 9" in "; ".join(problems(run, VERDICT, RIGHT))
