"""Every store keeps what the suite for storage asks; S3 on a real one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.storage.local_files import LocalFiles
from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.testing.storage import CHECKS, Check, Place
from tests.services.minio import MinIO

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]

BUCKET = "conformance"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinIO]:
    with MinIO(tmp_path_factory.mktemp("minio")) as started:
        started.make_bucket(BUCKET)
        yield started


def local_files(fixture: Callable[[str], Any], jars: Path | None) -> Place:
    folder = fixture("tmp_path_factory").mktemp("files")
    return Place(LocalFiles, f"file://{folder}", embedded=False, jars=jars)


def on_s3(scheme: str) -> Callable[[Callable[[str], Any], Path | None], Place]:
    def place(fixture: Callable[[str], Any], jars: Path | None) -> Place:
        bucket, nowhere = (f"{scheme}://{name}/house" for name in (BUCKET, "nobodys"))
        return Place(S3, bucket, s3=fixture("store").settings, nowhere=nowhere, jars=jars)

    return place


# One for each name in the table.
PLACES = {"file": local_files, "s3": on_s3("s3"), "s3a": on_s3("s3a")}


@pytest.fixture(scope="module", params=storage.STORAGE)
def place(request: pytest.FixtureRequest, jars_folder: Path | None) -> Place:
    found = PLACES[request.param](request.getfixturevalue, jars_folder)
    assert isinstance(storage.at(found.location, CatalogSettings(), S3Settings()), found.kind)
    return found


class TestStorage:
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_passes_the_suite(self, place: Place, check: Check, tmp_path: Path) -> None:
        check(place, tmp_path)
