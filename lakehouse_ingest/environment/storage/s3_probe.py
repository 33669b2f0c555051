"""Writes, reads and deletes an object beside the tables by boto3, which of all clients best explains a refusal of S3.

It is a module of its own because boto3 is an extra: only `S3.try_to_write` imports it, where boto3 is installed.
"""

import uuid
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from lakehouse_ingest.environment.storage.s3 import ANY_REGION, BY_CODE
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.settings import S3Settings
from lakehouse_ingest.settings.secret_words import revealed

PATIENCE_S = 10
BODY = b"lakehouse-ingest check"
# The status of an answer that has no body to explain it.
BY_STATUS = {"403": "AccessDenied", "404": "NoSuchBucket", "301": "PermanentRedirect"}


def written_and_read(s3: S3Settings, location: str) -> None:
    bucket, _, folder = location.partition("://")[2].partition("/")
    place = {"Bucket": bucket, "Key": f"{folder}/probe-{uuid.uuid4().hex}"}
    try:
        client = _client(s3)
        client.put_object(**place, Body=BODY)
        read = client.get_object(**place)["Body"].read()
        client.delete_object(**place)
    except (ClientError, BotoCoreError, ValueError) as failure:
        raise _explained(failure, bucket) from failure
    if read != BODY:
        raise TryAgain(f"an object written to the bucket {bucket} reads back with other content: see `s3.endpoint`")


def _client(s3: S3Settings) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name=s3.region or (ANY_REGION if s3.endpoint else None),
        aws_access_key_id=revealed(s3.access_key),
        aws_secret_access_key=revealed(s3.secret_key),
        aws_session_token=revealed(s3.session_token),
        config=Config(
            connect_timeout=PATIENCE_S,
            read_timeout=PATIENCE_S,
            retries={"max_attempts": 1},
            s3={"addressing_style": "path" if s3.path_style else "auto"},
        ),
    )


def _explained(failure: Exception, bucket: str) -> LakehouseError:
    match failure:
        case NoCredentialsError():
            return SettingsRefused(
                "no credentials for S3: set `s3.access_key` and `s3.secret_key`, or check AWS's own chain"
            )
        case ClientError():
            code = str(failure.response.get("Error", {}).get("Code", ""))
            code = BY_STATUS.get(code, code)
            if code in BY_CODE:
                return SettingsRefused(f"the bucket {bucket} can't be written ({code}): see {BY_CODE[code]}")
            return TryAgain(f"the bucket {bucket} can't be written: S3 answers {code}")
    return TryAgain(f"S3 can't be reached ({' '.join(str(failure).split())[:90]}): see `s3.endpoint` and `s3.region`")
