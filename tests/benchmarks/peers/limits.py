"""What no system can be faster at, with the libraries that we use: one process that does a part of the work.

`Consume` takes the records from librdkafka. `ConsumeDecodeWrite` also decodes them with msgspec, and writes Parquet
with pyarrow. Both know the columns beforehand, judge no record, commit to no table and could not go on after a crash.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from sys import executable
from typing import Literal

from tests.benchmarks.peers.alone import run_alone
from tests.benchmarks.peers.program import Program
from tests.benchmarks.peers.targets import ParquetFolder, Target
from tests.benchmarks.systems import Commit, CountIsWrong, Surroundings, Written

PROGRAM = Path(__file__).with_name("limit_program.py")


class Consume:
    name = "librdkafka alone"
    kind: Literal["limit"] = "limit"

    def prepare(self) -> None:
        """It needs nothing that we do not need."""

    def start(self, here: Surroundings, count: int) -> Program:
        return _started(here, count, "", Consumed(here.folder / "consumed"))


class ConsumeDecodeWrite:
    name = "consume, decode, write in one process"
    kind: Literal["limit"] = "limit"

    def prepare(self) -> None:
        """It needs nothing that we do not need."""

    def start(self, here: Surroundings, count: int) -> Program:
        return _started(here, count, str(here.folder / "files"), ParquetFolder(here.folder / "files"))


class Consumed:
    """The count that the program leaves, and at its end, whether it stands at the end of each partition."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def rows(self) -> int:
        return int(self._file.read_text().split()[0]) if self._file.exists() else 0

    def written(self) -> Written:
        return Written(0, 0)

    def commits(self) -> Sequence[Commit]:
        return ()

    def check(self, count: int) -> None:
        said = self._file.read_text() if self._file.exists() else "nothing"
        if said.split() != [str(count), "complete"]:
            raise CountIsWrong(f"{said} of {count} events were consumed")


def _started(here: Surroundings, count: int, files: str, target: Target) -> Program:
    settings = here.folder / "settings.json"
    asked = {
        "brokers": here.brokers,
        "topic": here.topic,
        "partitions": here.partitions,
        "count": count,
        "files": files,
        "consumed": str(here.folder / "consumed"),
    }
    settings.write_text(json.dumps(asked))
    return Program([executable, PROGRAM, settings], here, target, count)


def main() -> None:
    for limit in (Consume(), ConsumeDecodeWrite()):
        run_alone(limit)


if __name__ == "__main__":
    main()
