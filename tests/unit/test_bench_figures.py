"""The arithmetic of `make bench`, and what it prints: without an engine."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from subprocess import PIPE

import pytest

from lakehouse_ingest.settings import load_settings
from tests.benchmarks import bars, clusters, growth, page, profile, table, topics
from tests.benchmarks.figures import Sample, Span, at_commits, cold, cpu_at, middle, percentile, ratio, steady
from tests.benchmarks.latency import Seen, delays
from tests.benchmarks.ours import BASE, CASES, COLUMNS, INFERRED, Ours
from tests.benchmarks.process_tree import ProcessTree
from tests.benchmarks.results import (
    About,
    GrowthResult,
    LatencyResult,
    Point,
    Results,
    Run,
    StartResult,
    SystemResult,
    keep,
    kept,
)
from tests.benchmarks.systems import NUMBER, Surroundings, event
from tests.services.pipelines import until

SEED = random.randrange(2**32)
# Commits at 0.9, 1.2 and 3 million rows of 3; the first look comes before anything has happened.
SAMPLES = [
    Sample(0.0, 0.0, 0),
    Sample(8.0, 10.0, 900_000),
    Sample(10.0, 14.0, 1_200_000),
    Sample(15.0, 20.0, 1_200_000),
    Sample(20.0, 26.0, 3_000_000),
    Sample(30.0, 27.0, 3_000_000),
]


class TestCold:
    def test_goes_from_the_start_to_the_first_look_at_all(self) -> None:
        assert cold(SAMPLES, 3_000_000) == Span(3_000_000, 20.0, 26.0)

    def test_is_none_as_long_as_some_are_missing(self) -> None:
        assert cold(SAMPLES[:4], 3_000_000) is None


class TestCommits:
    LOOKS = (Sample(0.0, 0.0, 0), Sample(10.0, 20.0, 0), Sample(20.0, 30.0, 3_000_000))

    def test_count_when_they_were_made_and_not_at_the_next_look(self) -> None:
        seen = at_commits(self.LOOKS, [(8.0, 1_000_000), (15.0, 2_000_000)])
        assert seen == [self.LOOKS[0], Sample(8.0, 16.0, 1_000_000), Sample(15.0, 25.0, 3_000_000)]
        assert steady(seen, 3_000_000) == Span(2_000_000, 7.0, 9.0)

    def test_of_one_batch_to_many_tables_are_one(self) -> None:
        """Or the rows of the last tables would seem to have cost nothing."""
        batch = [(8.0, 500_000), (8.2, 500_000), (8.3, 500_000)]
        seen = at_commits(self.LOOKS, [*batch, (8.5, 700_000), (15.0, 800_000)])
        assert [(each.at, each.rows) for each in seen[1:]] == [(8.3, 1_500_000), (8.5, 2_200_000), (15.0, 3_000_000)]


class TestSteady:
    def test_begins_with_the_first_commit_beyond_a_million(self) -> None:
        found = steady(SAMPLES, 3_000_000)
        assert found == Span(1_800_000, 10.0, 12.0)
        assert found.per_cpu_second == 150_000
        assert found.per_second == 180_000

    def test_is_none_if_one_commit_brought_all(self) -> None:
        assert steady([SAMPLES[0], SAMPLES[4]], 3_000_000) is None

    def test_is_none_if_no_commit_follows(self) -> None:
        assert steady(SAMPLES[:4], 3_000_000) is None


class TestCpuBetweenLooks:
    @pytest.mark.parametrize(("at", "cpu"), [(0, 0), (4, 5), (8, 10), (9, 12), (30, 27), (99, 27)])
    def test_lies_on_the_line(self, at: float, cpu: float) -> None:
        assert cpu_at(SAMPLES, at) == cpu


class TestPercentile:
    def test_counts_each_value_as_often_as_it_occurs(self) -> None:
        assert percentile([(3.0, 1), (1.0, 98), (2.0, 1)], 98) == 1.0
        assert percentile([(3.0, 1), (1.0, 98), (2.0, 1)], 99) == 2.0
        assert percentile([(3.0, 1), (1.0, 98), (2.0, 1)], 100) == 3.0

    def test_is_that_of_all_values_in_order(self) -> None:
        chance = random.Random(SEED)
        print(f"seed {SEED}")
        for _ in range(50):
            values = [chance.randrange(40) / 4 for _ in range(chance.randrange(1, 300))]
            percent = chance.randrange(1, 101)
            wanted = sorted(values)[-(-len(values) * percent // 100) - 1]
            assert percentile([*Counter(values).items()], percent) == wanted

    def test_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no values"):
            percentile([], 50)


class TestFigures:
    def test_leave_out_unknown_values(self) -> None:
        assert middle([3.0, None, 1.0, 2.0]) == 2.0
        assert middle([None]) is None
        assert ratio(3.0, 2.0) == 1.5
        assert ratio(None, 2.0) is ratio(3.0, None) is ratio(3.0, 0.0) is None


class TestDelays:
    def test_count_each_event_once_with_the_time_of_its_tick(self) -> None:
        """Against the same by hand, event by event."""
        chance = random.Random(SEED)
        print(f"seed {SEED}")
        for _ in range(30):
            first, each, ticks = 6 * chance.randrange(4), chance.randrange(1, 30), chance.randrange(4, 40)
            skipped = chance.randrange(ticks)
            times = [100 + 0.01 * tick for tick in range(ticks)]
            count = first + each * ticks
            seen, upto = list[Seen](), 0
            while upto < count:
                upto = min(count, upto + chance.randrange(1, count + 1))
                held = {part: len(range(part, upto, topics.PARTITIONS)) for part in range(topics.PARTITIONS)}
                seen.append(Seen(200.0 + len(seen), held, upto, 1))
            wanted = Counter[float]()
            for number in range(first + skipped * each, count):
                wanted[next(one for one in seen if number < one.rows).at - times[(number - first) // each]] += 1
            found = Counter[float]()
            for delay, many in delays(seen, times, first, each, skipped):
                found[delay] += many
            assert found == wanted


class TestMessyTopic:
    COUNT = 40_000

    def test_breaks_one_in_a_hundred(self) -> None:
        broken = [number for number in range(self.COUNT) if topics.is_broken(number)]
        assert len(broken) == self.COUNT // 100
        assert all(topics.messy(number, self.COUNT)[1] != event(number, self.COUNT)[1] for number in broken)

    def test_brings_two_new_fields_and_late_times(self) -> None:
        sound = [number for number in range(self.COUNT) if not topics.is_broken(number)]
        values = [topics.messy(number, self.COUNT)[1] for number in sound]
        assert {name for value in values for name in (b'"new_0"', b'"new_1"', b'"new_2"') if name in value} == {
            b'"new_0"',
            b'"new_1"',
        }
        times = [topics._time(value) for value in values]
        late = [now for now, usual in zip(times, sound, strict=True) if now < topics._time(event(usual, self.COUNT)[1])]
        assert len(late) > self.COUNT // 2_000
        assert len({now // topics.DAY_MS for now in late}) >= 19

    def test_of_one_day_has_all_hours(self) -> None:
        times = [topics._time(topics.one_day(number, 5_000)[1]) for number in range(5_000)]
        assert len({time // 3_600_000 for time in times}) == 24
        assert len({time // topics.DAY_MS for time in times}) == 1


class TestOurCase:
    def test_has_settings_that_are_accepted(self, tmp_path: Path) -> None:
        here = Surroundings("127.0.0.1:1", "http://127.0.0.1:2", tmp_path, "events", 6, tmp_path, "lake")
        steps = [Ours("step", stream=step.stream, table=step.table) for *_, some in growth._steps() for step in some]
        for case in [*CASES, *steps]:
            (tmp_path / "pipeline.toml").write_text(case.settings(here))
            settings = load_settings(tmp_path / "pipeline.toml", environment={})
            assert settings.catalog.namespace == "lake"
            assert settings.streams[0].topics == ("events",)

    def test_declares_the_fields_of_the_events(self) -> None:
        assert [*json.loads(event(7, 10)[1])] == [*COLUMNS]
        assert NUMBER in COLUMNS


class TestGrowthWindows:
    def test_are_the_first_hundred_each_thousand_and_the_last(self) -> None:
        ends = [float(number) for number in range(2_350)]
        samples = [Sample(at, at * 2 + 50 if at >= growth.WARMING else at, 0) for at in ends]
        found = growth.windows(growth.Batches(ends, [0.5] * len(ends), samples))
        assert [point.x for point in found] == [0, 1_000, 2_000, 2_249]
        assert {(point.cpu, point.seconds) for point in found} == {(2.0, 0.5)}


def results() -> Results:
    run = Run(Span(100, 2.0, 1.0), Span(60, 1.0, 0.3), 900.0, 12, 3.5, 0.01)
    slow = replace(run, steady=Span(60, 1.0, 0.6), cold=Span(100, 2.0, 2.0))
    worse = replace(run, steady=None, peak_mb=1_000.0)
    return Results(
        About("2026-11-20", "abc", "a <machine>", 2, 25.0, 100, 3, quick=False),
        [
            SystemResult(BASE.name, "ours", [run, worse, run]),
            SystemResult(INFERRED.name, "ours", [slow]),
            SystemResult("a peer", "peer", [slow, slow, slow]),
            SystemResult("a slow peer", "peer", [replace(slow, cold=Span(100, 9.0, 9.0), steady=Span(60, 9.0, 9.0))]),
            SystemResult("another", "peer", failures=["CountIsWrong: 3 of 4"]),
            SystemResult(bars.ONE_PROCESS, "limit", [replace(run, steady=Span(100, 1.0, 0.25))]),
        ],
        [LatencyResult(10_000, "0s", 30.0, 300_000, 0.4, 0.9, 1.6, 0.8, 1_000.0, 90, 180)],
        [
            StartResult(BASE.name, "ours", [5.0, 6.0, 7.0], [9.0], [500.0]),
            StartResult(bars.SPARK, "peer", [6.0], [9.0]),
        ],
        [GrowthResult(bars.COMMITS, "commits", [Point(0, 0.1, 0.2), Point(10_000, 0.11, 0.2)])],
    )


class TestBars:
    def test_compare_medians(self) -> None:
        found = {bar.figure: bar for bar in bars.bars(results())}
        assert found["events per CPU second, steady state, to the best peer"].value == pytest.approx(2.0)
        assert found["events per CPU second, cold run, to the best peer"].value == pytest.approx(2.0)
        assert found["to consume, decode and write in one process"].value == pytest.approx(0.5)
        assert found["inferred columns to declared ones"].value == pytest.approx(0.5)
        assert found["inferred columns to declared ones"].met is False
        assert found["the same, p99"].met is False
        assert found["start to first commit"].value == 6.0
        assert found["a batch after 10,000 commits to the first 100"].value == pytest.approx(1.1)
        assert found["memory when idle"].met is True
        assert found["peak memory, draining a backlog"].value == 900.0

    def test_say_nothing_of_what_was_not_measured(self) -> None:
        nothing = Results(results().about)
        assert {bar.met for bar in bars.bars(nothing)} == {None}
        few = replace(results(), growth=[GrowthResult(bars.COMMITS, "", [Point(0, 1, 1), Point(9_000, 9, 9)])])
        assert {bar.figure: bar.value for bar in bars.bars(few)}[
            "a batch after 10,000 commits to the first 100"
        ] is None

    def test_compare_the_slowest_cluster_with_local_mode(self) -> None:
        run = Run(Span(100, 2.0, 1.0), Span(60, 1.0, 0.3), 900.0, 12, 3.5, 0.01)
        speeds = {clusters.LOCAL: 1.0, clusters.WITHIN: 1.1, clusters.STANDALONE: 1.6}
        found = replace(
            results(),
            clusters=[
                SystemResult(name, "ours", [replace(run, steady=Span(60, s, 0.3))]) for name, s in speeds.items()
            ],
        )
        (bar,) = [each for each in bars.bars(found) if "executors" in each.figure]
        assert bar.value == pytest.approx(1 / 1.6)
        assert bar.met is False
        assert f"| {clusters.STANDALONE} | 38 | 0.62 | 50 | 200 | 900 |" in table.shown(found)
        found.clusters[1].runs.clear()
        (unknown,) = [each for each in bars.bars(found) if "executors" in each.figure]
        assert unknown.value is None, "as long as one of them has no figure"


class TestFlameGraph:
    OURS = 'process 7:"python -m lakehouse_ingest run";'
    TASK = 'process 8:"java pyspark-shell";process {}:"python -m python_daemon";do (t.py:4)'
    RAW = (
        f"{OURS}run (a/pipeline.py:3);_load (<frozen importlib._bootstrap>:1);f (b.py:1) 5\n"
        f"{OURS}{TASK.format(9)} 2\n{OURS}{TASK.format(10)} 3\n"
    )

    def test_has_the_tasks_of_all_workers_together_and_not_how_python_imports(self, tmp_path: Path) -> None:
        (tmp_path / "raw").write_text(self.RAW)
        assert profile._python_stacks(tmp_path / "raw") == {
            ("our process", "run pipeline.py", "f b.py"): 5,
            ("our process", "Spark's JVM", "workers", "do t.py"): 5,
        }

    def test_shows_java_without_packages(self) -> None:
        assert profile._short("org/apache/spark/rdd/RDD$$Lambda$1809+0x00007f/1684574998") == "RDD$$Lambda"
        assert profile._short("java/lang/Thread") == "Thread"

    def test_is_as_wide_as_the_samples(self) -> None:
        drawn = profile.flame_graph({("a", "b"): 3, ("a", "<c>"): 1}, "plant")
        assert [*map(float, re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', drawn))] == [1600, 400, 1200]
        assert "&lt;c&gt;: 1" in drawn


class TestTable:
    def test_has_ratios_first_and_the_failures(self) -> None:
        shown = table.shown(results())
        first = next(line for line in shown.splitlines() if line.startswith("| events"))
        assert first == "| events per CPU second, steady state, to the best peer | 2 | at least 1.4 | met |"
        assert f"| {BASE.name} | 200 | 100 | 2.00 | 60 | 50 | 900 | 12 | 4 |" in shown
        assert "| another | - | - | - |" in shown
        assert "- another: CountIsWrong: 3 of 4" in shown
        assert "quiet" not in shown

    def test_stands_between_the_marks_of_its_page(self) -> None:
        text = f"# Speed\n\n{table.BEGIN}old\n{table.END}rest\n"
        once = table.renewed(text, "new\n")
        assert once == f"# Speed\n\n{table.BEGIN}\nnew\n\n{table.END}rest\n"
        assert table.renewed(once, "new\n") == once
        with pytest.raises(ValueError, match="lacks the marks"):
            table.renewed("# Speed\n", "new")

    def test_has_its_marks_in_the_docs(self) -> None:
        assert table.renewed(table.PAGE.read_text(encoding="utf-8"), "new")


class TestPage:
    def test_is_well_formed_and_needs_nothing_from_elsewhere(self) -> None:
        open_tags: list[str] = []

        class Checked(HTMLParser):
            def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
                assert tag not in {"script", "link", "img"}
                assert not {name for name, _ in attrs} & {"src", "href"}
                if tag != "meta":
                    open_tags.append(tag)

            def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
                pass

            def handle_endtag(self, tag: str) -> None:
                assert open_tags.pop() == tag

        written = page.written(results())
        Checked().feed(written)
        assert open_tags == []
        assert "<machine>" not in written
        assert written.count("<svg") == 6


class TestResults:
    def test_are_read_as_they_were_written(self, tmp_path: Path) -> None:
        keep(results(), tmp_path / "build" / "bench.json")
        assert kept(tmp_path / "build" / "bench.json") == results()


class TestProcessTree:
    BUSY = "import time\nwhile time.process_time() < 0.4: pass"

    def test_counts_descendants_that_live_and_that_have_ended(self) -> None:
        program = (
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {self.BUSY!r}]);"
            " held = bytearray(b'x') * 50_000_000; print('ready', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE) as process:
            assert process.stdout
            assert process.stdin
            tree = ProcessTree(process.pid)
            process.stdout.readline()
            assert 0.35 < tree.cpu() < 30
            assert 50_000_000 < tree.peak < 500_000_000
            assert tree.memory() > 50_000_000
            assert ProcessTree(os.getpid(), [process.pid]).memory() < ProcessTree(os.getpid()).memory() - 40_000_000
            process.stdin.close()

    def test_never_goes_back(self) -> None:
        with subprocess.Popen([sys.executable, "-c", self.BUSY]) as process:
            tree = ProcessTree(process.pid)
            assert until(lambda: tree.cpu() > 0.2, 60)
            process.wait()
            assert tree.cpu() > 0.2


class TestLandings:
    def test_reads_what_is_new_line_by_line(self, tmp_path: Path) -> None:
        log = tmp_path / "log.txt"
        line = b'{"event": "batch_landed", "duration_s": 0.5, "timestamp": "1970-01-01T00:00:0%d.5Z"}\n'
        log.write_bytes(b"Picked up\n" + line % 1 + line[:40])
        landings = growth.Landings(log)
        assert landings.look() == 1
        log.write_bytes(b"Picked up\n" + line % 1 + line % 2 + b'{"event": "stopped"}\n')
        assert landings.look() == 2
        assert (landings.ends, landings.took) == ([1.5, 2.5], [0.5, 0.5])
