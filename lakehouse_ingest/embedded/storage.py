"""What S3 answers a catalog that wants to write there, as one sentence that names the setting."""

from typing import Any

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain

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


def explained(failure: Any, place: str) -> LakehouseError:
    """`failure` is Java's: an answer of S3 has a code, of AWS's client there are only words."""
    where = f"`catalog.warehouse` {place[:LONGEST]} can't be written"
    for each in _causes(failure):
        kind, said = str(each.getClass().getName()), " ".join(str(each.getMessage()).split())
        if kind.startswith(ANSWER):
            code = str(each.awsErrorDetails().errorCode()) if each.awsErrorDetails() else f"status {each.statusCode()}"
            if code in BY_CODE:
                return SettingsRefused(f"{where} ({code}): see {BY_CODE[code]}.")
            return TryAgain(f"{where}: S3 answers {code}.")
        if kind.startswith(CLIENT):
            for words, names in BY_WORDS.items():
                if words in said:
                    return SettingsRefused(f"{where} ({said[:LONGEST]}): see {names}.")
            return TryAgain(f"{where} ({_root(each)[:LONGEST]}): see `s3.endpoint`.")
    return TryAgain(f"{where} ({_root(failure)[:LONGEST]}).")


def _causes(failure: Any) -> list[Any]:
    found = []
    while failure is not None:
        found.append(failure)
        failure = failure.getCause()
    return found


def _root(failure: Any) -> str:
    return " ".join(str(_causes(failure)[-1].toString()).split())
