"""quixstreams' sink for a lake: a stream processor in Python, whose files no catalog knows.

Its packages are in an environment of their own in the cache, installed from a lock of their own: what it needs must not
decide which versions lakehouse-ingest has.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from filelock import FileLock

from lakehouse_ingest.environment.jars import cache_folder
from tests.benchmarks.peers.alone import run_alone
from tests.benchmarks.peers.program import Program
from tests.benchmarks.peers.targets import ParquetFolder
from tests.benchmarks.systems import TIME, Surroundings

PROGRAM = Path(__file__).with_name("quix_program.py")
LOCK = Path(__file__).with_name("quix.lock")


class Quix:
    name = "quixstreams lake sink"
    kind: Literal["peer"] = "peer"

    def prepare(self) -> None:
        installed()

    def start(self, here: Surroundings, count: int) -> Program:
        settings = here.folder / "settings.json"
        settings.write_text(json.dumps(sink_settings(here, count)))
        return Program([installed(), PROGRAM, settings], here, ParquetFolder(here.folder / "lake"), count)


def sink_settings(here: Surroundings, count: int) -> dict[str, Any]:
    return {
        "application": {
            "broker_address": here.brokers,
            "consumer_group": f"bench-{uuid4().hex[:8]}",  # it must not know offsets of an earlier run
            "auto_offset_reset": "earliest",
            "commit_interval": 10.0,
            "state_dir": str(here.folder / "state"),
            "loglevel": "WARNING",
        },
        "topic": here.topic,
        "sink": {
            "s3_prefix": "tables",
            "table_name": "quix",
            "hive_columns": ["year", "month", "day"],
            "timestamp_column": TIME,
        },
        "lake": str(here.folder / "lake"),
        "count": count,
    }


def installed() -> Path:
    """The Python that has the packages of the lock."""
    home = cache_folder() / "engines" / f"quix-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_suffix(".lock")):
        if not (home / ".installed").exists():
            shutil.rmtree(home, ignore_errors=True)
            print(f"Installing quixstreams into {home}", flush=True)
            uv, python = Path(sys.prefix) / "bin" / "uv", home / "bin" / "python"
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, home], check=True)
            install: list[str | Path] = [
                uv,
                "pip",
                "install",
                "--quiet",
                "--python",
                python,
                "--require-hashes",
                "-r",
                LOCK,
            ]
            subprocess.run(install, check=True)
            (home / ".installed").touch()
    return home / "bin" / "python"


def main() -> None:
    run_alone(Quix())


if __name__ == "__main__":
    main()
