"""The peers of `make bench` as far as no engine is needed: settings, locks, and how their counts are proved."""

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.peers import PLACES, connect, jars, limit_program, peers, quix, spark_job, spark_program
from tests.benchmarks.peers.limits import Consumed
from tests.benchmarks.peers.targets import ParquetFolder, each_once
from tests.benchmarks.systems import BEGINS_MS, NUMBER, SPAN_MS, TIME, CountIsWrong, Surroundings, event

SEED = random.randrange(2**32)
COUNT = 1000


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    return Surroundings("127.0.0.1:1", "http://127.0.0.1:2", tmp_path, "events", 6, tmp_path, "lake")


def decoded(number: int) -> dict[str, object]:
    found = json.loads(event(number, COUNT)[1])
    assert isinstance(found, dict)
    return found


class TestEvent:
    def test_has_its_number_and_a_time_of_two_days(self) -> None:
        events = [decoded(number) for number in range(COUNT)]
        assert [each[NUMBER] for each in events] == [*range(COUNT)]
        times = [int(str(each[TIME])) for each in events]
        assert times == sorted(times)
        assert times[0] == BEGINS_MS
        assert BEGINS_MS + SPAN_MS - times[-1] <= SPAN_MS / COUNT
        assert BEGINS_MS % 86_400_000 == 0

    def test_is_about_as_long_as_said(self) -> None:
        assert 175 <= sum(len(event(number, 4_000_000)[1]) for number in range(COUNT)) / COUNT <= 195

    def test_has_the_columns_that_peers_declare(self) -> None:
        names = [*decoded(0)]
        assert re.findall(r"(\w+) \w+(?:<.*?>)?(?:, |$)", spark_program.EVENT) == names
        assert limit_program.SCHEMA.names == names


class TestPeers:
    def test_are_systems_with_names_of_their_own(self) -> None:
        found = peers()
        assert len({each.name for each in found}) == len(PLACES)
        assert [each.kind for each in found] == ["peer", "peer", "peer", "limit", "limit"]


class TestSettings:
    def test_of_connect_are_those_that_the_page_names(self, here: Surroundings) -> None:
        sink = connect.sink_settings(here, "bench-1")
        assert connect.worker_settings(here)["consumer.max.poll.records"] == "5000"
        assert (sink["tasks.max"], sink["iceberg.control.commit.interval-ms"]) == ("2", "10000")
        assert sink["iceberg.tables.default-partition-by"] == "day(ts_ms)"
        assert {"iceberg.tables.auto-create-enabled=true", "iceberg.tables.evolve-schema-enabled=true"} <= {
            *connect.properties(sink).splitlines()
        }

    def test_know_no_offsets_of_an_earlier_run(self, here: Surroundings) -> None:
        first, second = (quix.sink_settings(here, 1)["application"]["consumer_group"] for _ in range(2))
        assert first != second

    def test_stay_on_this_machine(self, here: Surroundings) -> None:
        texts = [
            connect.properties(connect.worker_settings(here)),
            connect.properties(connect.sink_settings(here, "a")),
        ]
        texts += [json.dumps(quix.sink_settings(here, 1))]
        assert {host for text in texts for host in re.findall(r"\d+\.\d+\.\d+\.\d+(?=:)", text)} == {"127.0.0.1"}


class TestLockOfJars:
    @pytest.mark.parametrize(
        ("peer", "wanted"), [("connect", "iceberg-kafka-connect-1.12.0.jar"), ("spark", "spark-sql-kafka")]
    )
    def test_names_each_jar_once(self, peer: str, wanted: str) -> None:
        found = jars.locked(peer)
        assert any(jar.name.startswith(wanted) for jar in found)
        assert len({jar.name for jar in found}) == len(found)
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size for jar in found)

    def test_has_no_other_peers(self) -> None:
        lines = [line for line in jars.LOCK.read_text().splitlines() if line and not line.startswith("#")]
        assert len(lines) == len(jars.locked("connect")) + len(jars.locked("spark"))


class TestLockOfQuix:
    def test_has_a_hash_for_each_package_and_no_host(self) -> None:
        text = quix.LOCK.read_text()
        assert "quixstreams==3.28.1 " in text
        assert "://" not in text
        packages = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
        assert all("--hash=sha256:" in package for package in packages)


def spoiled(numbers: Sequence[int]) -> dict[str, list[int]]:
    victim = random.Random(SEED).randrange(COUNT)
    return {
        "one is missing": [each for each in numbers if each != victim],
        "one is there twice": [*numbers, victim],
        "one stands for another": [(victim + 1) % COUNT if each == victim else each for each in numbers],
        "one is none of ours": [COUNT if each == victim else each for each in numbers],
        "nothing is there": [],
    }


class TestProof:
    def test_takes_each_number_in_any_order(self) -> None:
        numbers = [*range(COUNT)]
        random.Random(SEED).shuffle(numbers)
        each_once(pa.chunked_array([numbers[:300], numbers[300:]]), COUNT)

    @pytest.mark.parametrize("how", [*spoiled(())])
    def test_refuses_wrong_numbers(self, how: str) -> None:
        print(f"seed {SEED}")
        with pytest.raises(CountIsWrong, match=f"of {COUNT} events"):
            each_once(pa.chunked_array([spoiled(range(COUNT))[how]], pa.int64()), COUNT)

    def test_of_files_reads_all_of_them(self, tmp_path: Path) -> None:
        for day, numbers in enumerate((range(400), range(400, COUNT))):
            folder = tmp_path / f"day={day}"
            folder.mkdir()
            pq.write_table(pa.table({NUMBER: [*numbers]}), folder / "a.parquet")
        (tmp_path / "unfinished.parquet").write_bytes(b"PAR1")
        written = ParquetFolder(tmp_path)
        assert written.rows() == COUNT
        (tmp_path / "unfinished.parquet").unlink()
        assert written.written().files == 2
        written.check(COUNT)
        with pytest.raises(CountIsWrong):
            written.check(COUNT + 1)

    @pytest.mark.parametrize(
        ("said", "fits"),
        [("1000 complete", True), ("1000 incomplete", False), ("999 complete", False), ("1000", False)],
    )
    def test_of_consumed_records_is_the_end_of_each_partition(self, tmp_path: Path, *, said: str, fits: bool) -> None:
        (tmp_path / "consumed").write_text(said)
        check: Callable[[int], None] = Consumed(tmp_path / "consumed").check
        if fits:
            check(COUNT)
        else:
            with pytest.raises(CountIsWrong, match="consumed"):
                check(COUNT)


class TestSparkJob:
    def test_is_given_its_jars_as_files(self, here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jars, "fetched", lambda peer: [Path("/jars") / jar.name for jar in jars.locked(peer)])
        settings = spark_job.job_settings(here)
        assert settings["table"] == "lake.lake.spark"
        assert len(settings["jars"]) == len(jars.locked("spark"))
