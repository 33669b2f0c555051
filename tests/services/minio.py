"""MinIO, the real thing, as a process of its own: built once by Go, kept beside the jars.

with MinIO(tmp_path) as store:
    store.make_bucket("lake")
"""

import os
import secrets
import shutil
import subprocess
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config
from filelock import FileLock

from lakehouse_ingest.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.jars import cache_folder
from lakehouse_ingest.settings import S3Settings
from tests.services.pipelines import until

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
BUILDING = 1_800.0
STARTING = 30.0
REGION = "eu-central-1"  # it insists on it, as AWS does


def binary() -> Path:
    """Where it is kept, built or not; another version is another file."""
    return cache_folder() / "engines" / f"minio-{VERSION.rpartition('-')[2]}"


def build() -> Path:
    """Builds it if it is not there: with an empty Go cache this takes minutes."""
    wanted = binary()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(wanted.with_suffix(".lock")):
        if not wanted.exists():
            fresh = wanted.with_suffix(".new")
            environment = {**os.environ, "GOBIN": str(fresh), "CGO_ENABLED": "0"}
            subprocess.run(
                ["go", "install", f"{MODULE}@{VERSION}"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=BUILDING,
                check=True,
            )
            (fresh / "minio").rename(wanted)
            shutil.rmtree(fresh)
    return wanted


class MinIO:
    """One server on loopback, with keys that nobody has guessed."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"http://{LOOPBACK}:{any_free_port()}"
        self.access_key, self.secret_key = f"key{secrets.token_hex(8)}", secrets.token_hex(20)
        self._log = folder / "minio.log"
        command = [str(build()), "server", "--quiet", "--address", self.endpoint.partition("//")[2]]
        keys = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key}
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, str(folder / "objects")],
                env={**os.environ, **keys, "MINIO_REGION": REGION, "MINIO_UPDATE": "off", "MINIO_BROWSER": "off"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )

    def __enter__(self) -> Self:
        if not until(lambda: self._healthy() or self._process.poll() is not None, STARTING) or not self._healthy():
            self.stop()
            raise AssertionError(f"MinIO did not start: {self._log.read_text(errors='replace')[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)

    @property
    def settings(self) -> S3Settings:
        return S3Settings.model_validate(
            {
                "endpoint": self.endpoint,
                "region": REGION,
                "path_style": True,
                "access_key": self.access_key,
                "secret_key": self.secret_key,
            }
        )

    @cached_property
    def client(self) -> Any:
        """boto3's."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}),
        )

    def make_bucket(self, name: str) -> str:
        self.client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def keys(self, bucket: str, prefix: str = "") -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {each["Key"] for page in pages for each in page.get("Contents", ())}

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
