"""A Spark job written by hand: what a team has that needs one table and knows Spark."""

import json
from pathlib import Path
from sys import executable
from typing import Any, Literal

from lakehouse_ingest.environment.java import find_java
from tests.benchmarks.peers import jars
from tests.benchmarks.peers.alone import run_alone
from tests.benchmarks.peers.program import Program
from tests.benchmarks.peers.targets import IcebergTable
from tests.benchmarks.systems import Surroundings

PROGRAM = Path(__file__).with_name("spark_program.py")
TABLE = "spark"


class SparkJob:
    name = "Spark job by hand"
    kind: Literal["peer"] = "peer"

    def prepare(self) -> None:
        jars.fetched("spark")

    def start(self, here: Surroundings, count: int) -> Program:
        settings = here.folder / "settings.json"
        settings.write_text(json.dumps(job_settings(here)))
        environment = {"JAVA_HOME": str(find_java().parent.parent)}
        return Program([executable, PROGRAM, settings], here, IcebergTable(here, TABLE), count, environment)


def job_settings(here: Surroundings) -> dict[str, Any]:
    return {
        "jars": [str(jar) for jar in jars.fetched("spark")],
        "catalog": {"uri": here.catalog_uri, "token": here.token},
        "kafka": {"kafka.bootstrap.servers": here.brokers, "subscribe": here.topic},
        "table": f"lake.{here.namespace}.{TABLE}",
        "checkpoint": str(here.folder / "checkpoint"),
        "scratch": str(here.folder / "scratch"),
    }


def main() -> None:
    run_alone(SparkJob())


if __name__ == "__main__":
    main()
