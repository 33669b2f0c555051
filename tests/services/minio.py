"""MinIO, the real thing, as a process of its own: built once by Go, kept beside the jars.

with MinIO(tmp_path) as store:
    store.make_bucket("lake")
"""

import secrets
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.environment.jars import cache_folder
from lakehouse_ingest.settings import S3Settings
from tests.services.engine import Engine, answers, built, go

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
REGION = "eu-central-1"  # it insists on it, as AWS does


def binary() -> Path:
    """Where it is kept, built or not; another version is another file."""
    return cache_folder() / "engines" / f"minio-{VERSION.rpartition('-')[2]}"


def build() -> Path:
    """Builds it if it is not there: with an empty Go cache this takes minutes."""

    def make(folder: Path) -> Path:
        go("install", f"{MODULE}@{VERSION}", folder=folder, GOBIN=str(folder))
        return folder / "minio"

    return built(binary(), make)


class MinIO(Engine):
    """One server on loopback, with keys that nobody has guessed."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"http://{LOOPBACK}:{any_free_port()}"
        self.access_key, self.secret_key = f"key{secrets.token_hex(8)}", secrets.token_hex(20)
        address = self.endpoint.partition("//")[2]
        keys = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key}
        super().__init__(
            "MinIO",
            folder,
            [str(build()), "server", "--quiet", "--address", address, str(folder / "objects")],
            {**keys, "MINIO_REGION": REGION, "MINIO_UPDATE": "off", "MINIO_BROWSER": "off"},
        )

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

    def _is_ready(self) -> bool:
        return answers(f"{self.endpoint}/minio/health/live")
