"""A disk is full or read-only, or the checkpoint is damaged or gone, while a pipeline runs.

It says what is wrong, and begins again from the tables until it works: every offset ends in exactly one place.
"""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree
from threading import Event

import pytest
from pyspark.sql import SparkSession

from lakehouse_ingest.errors import LONGEST, TryAgain
from lakehouse_ingest.fail_points import FailPoint
from lakehouse_ingest.pipeline import batch
from tests.services.flow import LANDING, Flow, is_proven
from tests.services.ingesting import Bench
from tests.services.pipelines import until

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

LONG = pytest.mark.long
SIZE = 4 * 2**20


@dataclass(frozen=True)
class Disk:
    """A small one of its own."""

    folder: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """And it stays so: what others free meanwhile is taken as well."""
        ballast, end = self.folder / "ballast", Event()

        def fill() -> None:
            with ballast.open("wb", buffering=0) as file:
                while True:
                    with suppress(OSError):
                        while file.write(bytes(4096)):
                            pass
                    filled.set()
                    if end.wait(0.002):
                        return

        filled = Event()
        with ThreadPoolExecutor(1) as threads:
            filling = threads.submit(fill)
            assert filled.wait(LANDING)
            try:
                yield
            finally:
                end.set()
                filling.result()
                ballast.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        # Refused for as long as a file is being written.
        assert until(lambda: self._mounted("remount,ro"), LANDING, 0.01)
        try:
            yield
        finally:
            assert self._mounted("remount,rw")

    def _mounted(self, options: str) -> bool:
        done = subprocess.run(["mount", "-o", options, self.folder], capture_output=True, check=False)
        return done.returncode == 0


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"this user may not mount a small disk: {made.stderr.decode().strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@dataclass
class Scene:
    """A flow whose data, checkpoints and what Spark's tasks are given lie on a small disk each."""

    flow: Flow
    scratch: Path
    disks: dict[str, Disk] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Of the start that runs."""
        found = self.scratch.glob(f"start-*/checkpoint-{self.flow.name}-*")
        return max(found, key=lambda folder: int(folder.name.rpartition("-")[2]))

    def offsets(self) -> Path:
        """Spark's entry of the last batch."""
        return max(self.checkpoint.glob("offsets/[0-9]*"), key=lambda entry: int(entry.name))


@pytest.fixture(scope="module")
def scene(
    spark: SparkSession, broker: str, rest_uri: str, warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    scratch = tmp_path_factory.mktemp("small")
    with ExitStack() as disks:
        made = Scene(Flow(Bench(spark, broker, rest_uri, scratch), rest_uri), scratch)
        (given,) = Path(spark.conf.get("spark.local.dir") or "").glob("spark-*/pyspark-*")
        folders = {"data": warehouse / made.flow.namespace / "a" / "data", "checkpoint": scratch, "tasks": given}
        made.disks = {what: disks.enter_context(mounted(folder)) for what, folder in folders.items()}
        with made.flow.running():
            yield made
        made.flow.drain()
        is_proven(made.flow.direct)


FULL = "No space left on device"
DISKS = [
    pytest.param("data", Disk.full, FULL, "tables' files", id="data, full"),
    pytest.param("data", Disk.read_only, "Read-only file system", "tables' files", id="data, read-only", marks=LONG),
    # In this order: what Spark can't write on a full disk it leaves open, and a disk with such a file stays writable.
    pytest.param("checkpoint", Disk.read_only, "Read-only file system", "TMPDIR", id="checkpoint, read-only"),
    pytest.param("checkpoint", Disk.full, FULL, "TMPDIR", id="checkpoint, full", marks=LONG),
    pytest.param("tasks", Disk.full, FULL, "TMPDIR", id="what tasks are given, full"),
]


class TestDisk:
    @pytest.mark.parametrize(("what", "harm", "why", "where"), DISKS)
    def test_that_cannot_be_written_is_named_and_waited_for(
        self, scene: Scene, what: str, harm: Callable[[Disk], AbstractContextManager[None]], why: str, where: str
    ) -> None:
        """It is reported twice: the second time after the stream has tried to begin again."""
        told = scene.flow.heard.retries
        told.clear()
        with harm(scene.disks[what]):
            scene.flow.produce()
            assert until(lambda: len(told) > 1 or scene.flow.end.done(), LANDING)
            meanwhile = [*told]
        scene.flow.survives()
        for said in meanwhile:
            print(said)
            assert why in said
            assert where in said
            assert len(said) - len(str(scene.scratch)) <= LONGEST

    def test_that_stays_full_is_given_up(self, scene: Scene) -> None:
        """With what to do. Once that is done, the waiting records are written."""
        flow = Flow(scene.flow.bench, scene.flow.bench.uri)
        flow.produce()
        with scene.disks["checkpoint"].full(), pytest.raises(TryAgain, match=f"given up after .*{FULL}.*TMPDIR"):
            flow.bench.ingest(
                flow.direct.model_copy(update={"retry": flow.direct.retry.model_copy(update={"limit": 1})})
            )
        flow.drain()


# -- the checkpoint ---------------------------------------------------------------------------------------


def flip(file: Path, dice: Random) -> None:
    """One bit of one digit of the last offset: it stays a number."""
    text = bytearray(file.read_bytes())
    at, bit = max(at for at, byte in enumerate(text) if chr(byte).isdigit()), dice.choice([0, 1, 2])
    text[at] ^= 1 << bit
    print(f"{file.name}: bit {bit} of byte {at}")
    file.write_bytes(text)


def remove(file: Path, _: Random) -> None:
    """All of it, which Spark goes on writing to."""
    rmtree(file.parent.parent, ignore_errors=True)


def at_the_next_batch(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> list[FailPoint]:
    """`do` once Spark has fixed what the batch is."""
    done: list[FailPoint] = []

    def reached(point: FailPoint) -> None:
        if point is FailPoint.OFFSETS_LOGGED and not done:
            done.append(point)
            do()

    monkeypatch.setattr(batch, "reached", reached)
    return done


class TestCheckpoint:
    @pytest.mark.parametrize(
        ("harm", "under_a_batch"),
        [
            pytest.param(flip, False, id="a bit flipped between batches", marks=LONG),
            pytest.param(flip, True, id="a bit flipped under a batch"),
            pytest.param(remove, False, id="gone between batches", marks=LONG),
            pytest.param(remove, True, id="gone under a batch"),
        ],
    )
    def test_that_is_damaged_or_missing_costs_no_record(
        self,
        scene: Scene,
        harm: Callable[[Path, Random], None],
        dice: Random,
        monkeypatch: pytest.MonkeyPatch,
        *,
        under_a_batch: bool,
    ) -> None:
        """The checkpoint is not needed: the offsets are our own. If Spark fails without it, the next start goes on."""
        if under_a_batch:
            done = at_the_next_batch(monkeypatch, lambda: harm(scene.offsets(), dice))
            scene.flow.survives()
            assert done
        else:
            harm(scene.offsets(), dice)
            scene.flow.survives()
        scene.flow.survives()
        print(scene.flow.heard.retries)
