"""The tables, written once a store; each reader at each store that it can reach; and the matrix of what they answer."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlparse

import pytest

from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables.clients import embedded
from tests.readers.matrix import Matrix
from tests.readers.reading import READERS, STORES, Reader, Store
from tests.readers.written import files_of_other_days, write
from tests.services.doors import known
from tests.services.ingesting import Bench, spark_by
from tests.services.minio import MinIO
from tests.services.readers import local

BUCKET = "lake"


@pytest.fixture(scope="session")
def files(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """On local files."""
    write(bench, "readers_files", S3Settings())
    for path in files_of_other_days(bench):
        local(path).unlink()
    return Store("files", bench.uri, {}, bench.spark, tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="session")
def s3(bench: Bench, jars_folder: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """On MinIO."""
    folder = tmp_path_factory.mktemp("s3")
    with ExitStack() as stack:
        minio = stack.enter_context(MinIO(folder))
        minio.make_bucket(BUCKET)
        catalog = CatalogSettings(path=folder / "lakehouse", warehouse=f"s3://{BUCKET}/house")
        uri = known(stack.enter_context(embedded(catalog, minio.settings, jars_folder, 0)))
        properties = S3(CatalogSettings(), minio.settings).properties()
        there = Bench(bench.spark, bench.broker, uri, tmp_path_factory.mktemp("s3-pipelines"), properties)
        with spark_by(bench.spark, there.settings("any", s3=minio.settings)):
            write(there, "readers_s3", minio.settings)
        for path in files_of_other_days(there):
            minio.client.delete_object(Bucket=BUCKET, Key=urlparse(path).path.lstrip("/"))
        yield Store("s3", uri, properties, bench.spark, folder)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(
            (kind, store), id=f"{kind.name}-{store}", marks=pytest.mark.long if kind.long or store == "s3" else ()
        )
        for store in STORES
        for kind in READERS
        if store not in kind.without
    ],
)
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    kind, store = request.param
    with kind.at(request.getfixturevalue(store)) as reader:
        yield reader


@pytest.fixture(scope="session")
def matrix() -> Iterator[Matrix]:
    """What came of it; written where LAKEHOUSE_TEST_MATRIX says, if every reader was asked everything."""
    matrix = Matrix()
    yield matrix
    matrix.keep()
