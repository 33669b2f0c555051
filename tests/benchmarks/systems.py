"""What `make bench` compares: systems that carry the same events from the same topic to where a reader finds them.

The runner starts broker and catalog, fills the topic once, and then starts one system after the other. Each is a tree
of processes of its own, so that its processor time and memory can be told from everything else.

An event is JSON of about 185 bytes. `NUMBER` counts them from 0, over all partitions together: a system has lost and
doubled nothing if it holds each number from 0 to count - 1 once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog

NUMBER = "seq"
TYPES = 20  # locations; each partition has all of them, in turn
TIME = "ts_ms"  # milliseconds since 1970; tables are partitioned by its day
# The first day, at midnight UTC. The events spread evenly and in order over two days.
BEGINS_MS, SPAN_MS = 1_750_032_000_000, 2 * 86_400_000


@dataclass(frozen=True)
class Surroundings:
    """What a system stands on. The topic is full. Folder and namespace exist; both are empty, and this run's alone."""

    brokers: str
    catalog_uri: str
    warehouse: Path  # of the embedded catalog: its tables are local files below it
    topic: str
    partitions: int
    folder: Path  # scratch of this run: logs, settings, files of systems that know no catalog
    namespace: str

    @property
    def token(self) -> str:
        """What the embedded catalog asks for."""
        return EmbeddedCatalog(self.warehouse).token_of(self.catalog_uri)


@dataclass(frozen=True)
class Commit:
    """When readers saw more events: seconds since 1970."""

    at: float
    events: int


@dataclass(frozen=True)
class Written:
    files: int
    size: int  # bytes


class CountIsWrong(Exception):
    """Events are missing, or there more than once. Such a run has no figure."""


class Started(Protocol):
    @property
    def pid(self) -> int:
        """The root of its tree of processes. Everything below it counts."""

    def rows(self) -> int:
        """How many events a reader sees now. Raises RuntimeError if the system has ended early, with its last words."""

    def written(self) -> Written:
        """The files that a reader reads for these events."""

    def commits(self) -> Sequence[Commit]:
        """Those of all its tables. None for a system without a catalog: there only `rows` shows what is there."""

    def stop(self) -> None:
        """Ends the whole tree, and returns once it has ended. A second call does nothing."""

    def check(self) -> None:
        """To be called after `stop`: every event is there exactly once, or CountIsWrong."""


class System(Protocol):
    @property
    def name(self) -> str:
        """As the report calls it."""

    @property
    def kind(self) -> Literal["ours", "peer", "limit"]:
        """A limit does less than a system has to: it shows how fast a part of the work can be."""

    def prepare(self) -> None:
        """Downloads what is missing (jars, packages), so that no measurement waits for it."""

    def start(self, here: Surroundings, count: int) -> Started:
        """Returns at once. The topic holds `count` events."""


def event(number: int, count: int) -> tuple[bytes, bytes]:
    """Key and value of an event of `count`. Its partition is `number` modulo the number of partitions."""
    sensor, mixed = number % 1000, number * 2_654_435_761 % 2**32
    text = (
        f'{{"ts_ms":{BEGINS_MS + number * SPAN_MS // count},"sensor_id":"sensor-{sensor:04}",'
        f'"location":"loc-{sensor // 7 % TYPES:02}","temperature":{(1500 + (mixed >> 12) % 2000) / 100},'
        f'"humidity":{(3000 + (mixed >> 4) % 4000) / 100},"seq":{number},'
        f'"status":"{"ok" if number % 97 else "warn"}",'
        f'"device":{{"fw":"fw-1.{sensor % 4}.0","battery":{(mixed >> 20) % 101},"rssi":{-40 - mixed % 50}}}}}'
    )
    return b"sensor-%04d" % sensor, text.encode()
