"""An object store answers 500 or 503, or hangs up: its clients ask again, or the pipeline begins again.

Spark and pyiceberg reach the store through a proxy. The catalog goes past it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.settings import CatalogSettings
from lakehouse_ingest.tables.clients import embedded
from tests.services.doors import known
from tests.services.faulty import RESET, Faulty
from tests.services.flow import Flow
from tests.services.ingesting import Bench
from tests.services.minio import MinIO
from tests.services.pipelines import until

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1_800)]

Plan = Mapping[str, Any]
BUCKET = "lake"
OFTEN = 1_000
# Or each of Spark's clients would ask for most of a minute before it gives up.
IMPATIENT = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "100", "s3.retry.max-wait-ms": "200"}
INTERNAL = {"status": 500, "said": "<Error><Code>InternalError</Code></Error>"}
SLOW_DOWN = {"status": 503, "said": "<Error><Code>SlowDown</Code></Error>"}
HUNG_UP = {"status": RESET}
FILES: Mapping[str, Plan] = {
    "a data file": {"method": "PUT", "path": r"/a/data/.*\.parquet$"},
    "a manifest": {"method": "PUT", "path": r"/a/metadata/.*-m0\.avro$"},
    "a manifest list": {"method": "PUT", "path": r"/a/metadata/snap-.*\.avro$"},
    "the batch record's": {"method": "PUT|POST", "path": r"/lakehouse_batches/"},
    "what is read": {"method": "GET", "path": r"/metadata/.*\.avro$"},
}


@dataclass(frozen=True)
class Stored:
    flow: Flow
    proxy: Faulty


@pytest.fixture(scope="module")
def stored(
    spark: SparkSession, broker: str, jars_folder: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("stored")
    here = CatalogSettings(path=folder / "catalog", warehouse=f"s3://{BUCKET}/house")
    with MinIO(folder) as store, Faulty(store.endpoint) as proxy:
        store.make_bucket(BUCKET)
        files = S3(here, store.settings).properties()
        with embedded(here, store.settings, jars_folder, 0) as catalog:
            bench = Bench(spark, broker, known(catalog), tmp_path_factory.mktemp("pipelines"), files)
            flow = Flow(bench, bench.uri, s3=through(store, proxy), properties=IMPATIENT)
            with flow.running():
                yield Stored(flow, proxy)
            proxy.heal()
            flow.drain()


def through(store: MinIO, proxy: Faulty) -> dict[str, Any]:
    keys = {"access_key": store.access_key, "secret_key": store.secret_key}
    return {"endpoint": proxy.uri, "region": store.settings.region, "path_style": True, **keys}


@pytest.fixture(autouse=True)
def _no_keys_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class TestStore:
    @pytest.mark.parametrize("fault", [INTERNAL, SLOW_DOWN], ids=["500", "503"])
    @pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
    def test_that_fails_once_is_asked_again(self, stored: Stored, file: Plan, fault: Plan) -> None:
        stored.flow.survives(stored.proxy.fail(**file, **fault))

    @pytest.mark.parametrize(
        ("file", "fault"), [("a data file", INTERNAL), ("the batch record's", HUNG_UP)], ids=["500", "reset"]
    )
    def test_that_fails_for_a_while_is_waited_for(self, stored: Stored, file: str, fault: Plan) -> None:
        """Longer than any client repeats: the pipeline begins again until the store works."""
        lasting = stored.proxy.fail(**FILES[file], **fault, times=OFTEN)
        stored.flow.produce()
        assert until(lambda: lasting.struck >= 5 or stored.flow.end.done(), 60)
        stored.proxy.heal()
        stored.flow.survives()
