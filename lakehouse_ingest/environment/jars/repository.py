"""A Maven repository: the central one, or the mirror that LAKEHOUSE_INGEST_JARS_MIRROR names.

Proxies and the logins of `.netrc` are what `requests` reads from the environment, certificates what Java trusts too.
Where there is a mirror, nobody else is asked: the checksums say whether it has the same files.
"""

import os
import re
import zipfile
from collections.abc import Generator, Mapping
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests

from lakehouse_ingest.environment.trust_store import named_bundle
from lakehouse_ingest.errors import SettingsRefused

MIRROR = "LAKEHOUSE_INGEST_JARS_MIRROR"
# The address of the central repository, as the Ivy that comes with pyspark has it: Spark and we ask the same one.
CENTRAL_FILE = "org/apache/ivy/core/settings/repository.properties"
CENTRAL_KEY = "ivy.ibiblio.default.artifact.root"
# A network that swallows packets must end as a failed download, not as a program that hangs.
PATIENCE_S = (20.0, 20.0)  # to connect, and for the next bytes
CHUNK = 2**18
# Answers that may be others in a moment: too slow, too many requests, or a server or proxy in trouble.
PASSING = {408, 425, 429, 500, 502, 503, 504}


class ConnectionCut(Exception):
    """The repository did not answer, or not to the end. Asking again may help."""


class NotServed(Exception):
    """The repository refuses, and will again."""


class Repository(Protocol):
    def read(self, path: str, start: int) -> Generator[bytes, None, None]:
        """The file from the byte `start` on. Raises ConnectionCut or NotServed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def repository(environ: Mapping[str, str] = os.environ) -> Repository:
    root = mirror(environ) or _central()
    if urlsplit(root).scheme == "file":
        return FolderRepository(Path(url2pathname(urlsplit(root).path)))
    return WebRepository(root, named_bundle(environ))


def mirror(environ: Mapping[str, str] = os.environ) -> str | None:
    named = environ.get(MIRROR)
    if named and not re.match(r"(https?://[^/@\s]+|file:/)[^@\s]*$", named):
        raise SettingsRefused(
            f"{MIRROR} should be the http://, https:// or file:// address of a Maven repository, without a password."
        )
    return named or None


class WebRepository:
    """By HTTP. Threads may share it: its pool of connections is urllib3's, and it keeps nothing else."""

    def __init__(self, root: str, bundle: str | None) -> None:
        self._root, self._bundle = root.rstrip("/"), bundle
        self._session = requests.Session()

    def read(self, path: str, start: int) -> Generator[bytes, None, None]:
        # Compressed on its way, a file's bytes could not be counted.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        try:
            with self._session.get(
                f"{self._root}/{path}", headers=headers, stream=True, timeout=PATIENCE_S, verify=self._bundle or True
            ) as answer:
                if answer.status_code in PASSING:
                    raise ConnectionCut(_status(answer))
                if not answer.ok:
                    raise NotServed(_status(answer))
                # A server that knows no ranges sends all of it once more.
                known = 0 if answer.status_code == HTTPStatus.PARTIAL_CONTENT else start
                for chunk in answer.iter_content(CHUNK):
                    if len(chunk) > known:
                        yield chunk[known:]
                    known = max(0, known - len(chunk))
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as failure:
            raise ConnectionCut(_reason(failure)) from failure
        except requests.RequestException as failure:
            raise NotServed(_reason(failure)) from failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


class FolderRepository:
    """A folder that is laid out like a Maven repository."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, start: int) -> Generator[bytes, None, None]:
        try:
            with (self._root / path).open("rb") as file:
                file.seek(start)
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as failure:
            raise NotServed(failure.strerror or str(failure)) from failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""


def _central() -> str:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    ivy = next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"))
    with zipfile.ZipFile(ivy) as packed:
        lines = packed.read(CENTRAL_FILE).decode("latin-1").splitlines()
    settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return settings[CENTRAL_KEY]


def _status(answer: requests.Response) -> str:
    return f"{answer.status_code} {answer.reason}".strip()


def _reason(failure: requests.RequestException) -> str:
    """The innermost of urllib3's reasons, without its objects' names."""
    inner: BaseException = failure
    while True:
        found = getattr(inner, "reason", None) or next(iter(inner.args), None)
        if not isinstance(found, BaseException):
            break
        inner = found
    said = " ".join(str(inner).split()) or type(inner).__name__
    return re.sub(r"^\w+\([^()]*\): ", "", said)[:120]
