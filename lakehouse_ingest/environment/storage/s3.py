"""S3 and the stores with its protocol, reached as the section `s3` of the settings says.

What the section leaves out is not set for the clients either: then AWS's own chain (variables, profile, role) decides.
"""

import importlib.util
from pathlib import Path
from typing import Any

from lakehouse_ingest.environment.jars import ensure
from lakehouse_ingest.environment.proxies import s3_properties
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.settings.field_types import given
from lakehouse_ingest.settings.secret_words import revealed

# AWS's client needs a region; a store that is not AWS does not ask for one.
ANY_REGION = "us-east-1"
AT_ONCE = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "100"}
LONGEST = 80
ANSWER, CLIENT = "software.amazon.awssdk.services.s3.model.", "software.amazon.awssdk.core.exception."
BY_CODE = {
    "InvalidAccessKeyId": "`s3.access_key`",
    "SignatureDoesNotMatch": "`s3.secret_key`",
    "ExpiredToken": "`s3.session_token`",
    "InvalidToken": "`s3.session_token`",
    "NoSuchBucket": "its bucket",
    "InvalidBucketName": "its bucket",
    "PermanentRedirect": "`s3.region`",
    "AuthorizationHeaderMalformed": "`s3.region`",
    "AccessDenied": "what the key in `s3.access_key` may do",
}
BY_WORDS = {"load region": "`s3.region`", "load credentials": "`s3.access_key` and `s3.secret_key`"}


class S3:
    def __init__(self, catalog: CatalogSettings, s3: S3Settings) -> None:
        self._catalog, self._s3 = catalog, s3

    def properties(self, *, keys: bool = True) -> dict[str, str]:
        s3 = self._s3
        return given(
            {
                "s3.endpoint": s3.endpoint,
                "client.region": s3.region or (ANY_REGION if s3.endpoint else None),
                "s3.path-style-access": "true" if s3.path_style else None,
                "s3.access-key-id": revealed(s3.access_key) if keys else None,
                "s3.secret-access-key": revealed(s3.secret_key) if keys else None,
                "s3.session-token": revealed(s3.session_token) if keys else None,
            }
        )

    def of_pyiceberg(self) -> dict[str, str]:
        # With an endpoint pyarrow puts the bucket into the path by default, without one never.
        virtual = str(not self._s3.path_style).lower() if self._s3.endpoint else None
        return {**given({"s3.force-virtual-addressing": virtual}), **s3_properties(self._s3.endpoint)}

    def of_embedded(self, *, at_once: bool = False) -> dict[str, str]:
        return {"http-client.type": "urlconnection", **(AT_ONCE if at_once else {})}

    def jars(self, folder: Path | None) -> list[Path]:
        """A few small ones, and AWS's SDK out of Spark's jars: so nobody downloads 66 MB twice."""
        bundle = [jar for jar in ensure("spark", folder=folder) if jar.name.startswith("iceberg-aws-bundle")]
        return [*ensure("catalog-s3", folder=folder), *bundle]

    def explained(self, failure: Any, place: str) -> LakehouseError:
        """An answer of S3 has a code; an error of AWS's client has only words."""
        where = f"`catalog.warehouse` {place[:LONGEST]} can't be written"
        for each in _causes(failure):
            kind, said = str(each.getClass().getName()), " ".join(str(each.getMessage()).split())
            if kind.startswith(ANSWER):
                details = each.awsErrorDetails()
                code = str(details.errorCode()) if details else f"status {each.statusCode()}"
                if code in BY_CODE:
                    return SettingsRefused(f"{where} ({code}): see {BY_CODE[code]}.")
                return TryAgain(f"{where}: S3 answers {code}.")
            if kind.startswith(CLIENT):
                for words, names in BY_WORDS.items():
                    if words in said:
                        return SettingsRefused(f"{where} ({said[:LONGEST]}): see {names}.")
                return TryAgain(f"{where} ({_root(each)[:LONGEST]}): see `s3.endpoint`.")
        return TryAgain(f"{where} ({_root(failure)[:LONGEST]}).")

    def try_to_write(self, location: str) -> None:
        """By boto3, where it is installed. With vended credentials there are no keys of ours to try."""
        if self._catalog.vended_credentials or not importlib.util.find_spec("boto3"):
            return
        from lakehouse_ingest.environment.storage.s3_probe import written_and_read  # noqa: PLC0415 - boto3 is an extra

        written_and_read(self._s3, location)


def _causes(failure: Any) -> list[Any]:
    found = []
    while failure is not None:
        found.append(failure)
        failure = failure.getCause()
    return found


def _root(failure: Any) -> str:
    return " ".join(str(_causes(failure)[-1].toString()).split())
