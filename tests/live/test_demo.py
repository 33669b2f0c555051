"""The demo keeps its promise, shows it, leaves nothing behind, and can fail."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakehouse_ingest.demo.proof import Found, Held, Outcome, Run, problems
from lakehouse_ingest.embedded.broker import EmbeddedBroker
from lakehouse_ingest.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.embedded.claim import free

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "lakehouse_ingest.cli", "demo")
MARK = "STARTED_FOR"


def demo(folder: Path) -> dict[str, Any]:
    """Runs it to its end; what it left in demo.json."""
    words = [*DEMO, "--seconds", "6", "--folder", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=marked(folder), capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.partition("What became")[2].partition("Left in")[0].splitlines())) <= 80
    told: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    return told


def servers(folder: Path) -> tuple[EmbeddedCatalog, EmbeddedBroker]:
    return EmbeddedCatalog(folder / "warehouse"), EmbeddedBroker(folder / ".lakehouse-broker")


def assert_nothing_runs(folder: Path, seconds: float = 0) -> None:
    """No process that was started for this folder, and no port that one of them listened on."""
    deadline = time.monotonic() + seconds
    while left := [entry.name for entry in Path("/proc").glob("[0-9]*") if started_for(folder, entry)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    for server in servers(folder):
        note = server.claim.read()
        assert note is not None
        assert free(note.port)


def started_for(folder: Path, process: Path) -> bool:
    """By its environment, which children of children inherit."""
    try:
        return f"{MARK}={folder}\0".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def marked(folder: Path) -> dict[str, str]:
    return {**os.environ, MARK: str(folder)}


@pytest.mark.live
def test_counts_add_up_and_so_they_do_in_a_second_run(tmp_path: Path, jars_folder: Path | None) -> None:
    first = demo(tmp_path)
    assert_nothing_runs(tmp_path)
    second = demo(tmp_path)
    assert_nothing_runs(tmp_path)
    for told in (first, second):
        run = told["counts"]["run"]
        assert told["adds_up"]
        assert run["produced"] == run["received"] == run["landed"] + run["dead"] > 4000
        assert sum(run["reasons"].values()) == run["dead"] > 0
        assert len(run["reasons"]) >= 6
        assert len(told["partitions"]) >= 3
    total = second["counts"]["total"]
    for name in ("produced", "landed", "dead"):
        assert total[name] == first["counts"]["run"][name] + second["counts"]["run"][name]

    with EmbeddedCatalog(tmp_path / "warehouse", jars=jars_folder) as catalog:
        assert catalog.uri == second["catalog"], "the port that demo.json names is the one that stays"
        lake = load_catalog("lake", type="rest", uri=second["catalog"])
        events = lake.load_table(second["tables"]["events"]).scan(selected_fields=("_source",)).to_arrow().to_pylist()
        dead = lake.load_table(second["tables"]["dead_letters"]).scan().to_arrow().to_pylist()
    assert (len(events), len(dead)) == (total["landed"], total["dead"])
    places = [(row["_source"]["partition"], row["_source"]["offset"]) for row in (*events, *dead)]
    assert len(set(places)) == len(places) == total["produced"]
    assert {row["reason"] for row in dead} == set(total["reasons"])


@pytest.mark.live
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_broken_off_it_leaves_no_orphan(stop: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM while Spark starts, when nobody handles it yet; Ctrl-C, in all of the group, in the midst of things."""
    words = [*DEMO, "--seconds", "60", "--folder", str(tmp_path)]
    until = {signal.SIGINT: "the pipeline starts", signal.SIGTERM: "Spark starts"}[stop]
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=marked(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as running:
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
    produced=8,
    broken={"broken_json": 2},
    begins={("sensors", 0): 10, ("sensors", 1): 10},
    ends={("sensors", 0): 15, ("sensors", 1): 13},
    batches=(),
    seconds={},
)
RIGHT = Found(
    "an engine",
    (Held(0, rows=15, offsets=15, first=0, last=14), Held(1, rows=13, offsets=13, first=0, last=12)),
    (Outcome("broken_json", rows=7, new=2, detail=""), Outcome("landed", rows=21, new=6, detail=None)),
    (),
)


def test_what_is_right_is_right() -> None:
    assert problems(RUN, RIGHT) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(RIGHT, held=(replace(RIGHT.held[0], rows=16), RIGHT.held[1])), "1 rows are there more than once"),
        (replace(RIGHT, held=(replace(RIGHT.held[0], offsets=14, rows=14), RIGHT.held[1])), "1 of 15 offsets are in"),
        (replace(RIGHT, held=(RIGHT.held[0],)), "partition 1: 13 of 13 offsets are in neither"),
        (replace(RIGHT, held=(replace(RIGHT.held[0], last=15), RIGHT.held[1])), "offsets 0 to 15, the topic has 0 to"),
        (replace(RIGHT, held=(*RIGHT.held, Held(2, 1, 1, 0, 0))), "partition 2: the topic has no such"),
        (replace(RIGHT, outcomes=(replace(RIGHT.outcomes[0], new=1), RIGHT.outcomes[1])), "8 events were produced"),
        (replace(RIGHT, outcomes=(replace(RIGHT.outcomes[0], name="not_utf8"), RIGHT.outcomes[1])), "not_utf8: 0 even"),
    ],
)
def test_a_record_lost_doubled_or_misjudged_is_found(found: Found, said: str) -> None:
    assert said in "; ".join(problems(RUN, found))
