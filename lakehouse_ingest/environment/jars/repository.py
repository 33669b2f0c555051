"""A Maven repository: the central one, or the mirror that LAKEHOUSE_INGEST_JARS_MIRROR names.

Proxies and the logins of `.netrc` are what `requests` reads from the environment, certificates what Java trusts too.
Where there is a mirror, nobody else is asked: the checksums say whether it has the same files.
"""

import os
import re
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests

from lakehouse_ingest.environment.proxies import refuse_wrong_proxies
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
Read = Callable[[str, int], Generator[bytes, None, None]]


class ConnectionCut(Exception):
    """The repository did not answer, or not to the end. Asking again may help."""


class NotServed(Exception):
    """The repository refuses, and will again."""


@contextmanager
def repository() -> Iterator[Read]:
    """A function that reads a file, from a byte on. It raises ConnectionCut or NotServed."""
    root = mirror() or _central()
    if root.startswith("file:"):
        yield partial(_from_folder, Path(url2pathname(urlsplit(root).path)))
        return
    refuse_wrong_proxies(os.environ)
    # Threads may share the session: its pool of connections is urllib3's, and nothing else of it changes.
    with requests.Session() as session:
        yield partial(_from_web, session, root.rstrip("/"), named_bundle(os.environ) or True)


def mirror() -> str | None:
    named = os.environ.get(MIRROR)
    if named and not re.match(r"(https?://[^/@\s]+|file:/)[^@\s]*$", named):
        raise SettingsRefused(
            f"{MIRROR} should be the http://, https:// or file:// address of a Maven repository, without a password."
        )
    return named or None


def _from_folder(root: Path, path: str, start: int) -> Generator[bytes, None, None]:
    try:
        with (root / path).open("rb") as file:
            file.seek(start)
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as failure:
        raise NotServed(failure.strerror or str(failure)) from failure


def _from_web(
    session: requests.Session, root: str, verify: str | Literal[True], path: str, start: int
) -> Generator[bytes, None, None]:
    # A length that is counted over compressed bytes would not be the file's.
    # The other clients know nothing of ALL_PROXY, and what it may name, SOCKS, needs a package more.
    proxies = {"all": ""}
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with session.get(
            f"{root}/{path}", headers=headers, stream=True, timeout=PATIENCE_S, verify=verify, proxies=proxies
        ) as answer:
            if not answer.ok:
                kind = ConnectionCut if answer.status_code in PASSING else NotServed
                raise kind(f"{answer.status_code} {answer.reason}".strip())
            # A server that knows no ranges sends the file from its beginning.
            known = 0 if answer.status_code == HTTPStatus.PARTIAL_CONTENT else start
            for chunk in answer.iter_content(CHUNK):
                if len(chunk) > known:
                    yield chunk[known:]
                known = max(0, known - len(chunk))
    except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as failure:
        raise ConnectionCut(_reason(failure)) from failure
    except requests.RequestException as failure:
        raise NotServed(_reason(failure)) from failure


def _central() -> str:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    ivy = next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"))
    with zipfile.ZipFile(ivy) as packed:
        lines = packed.read(CENTRAL_FILE).decode("latin-1").splitlines()
    settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return settings[CENTRAL_KEY]


def _reason(failure: requests.RequestException) -> str:
    """The innermost of urllib3's reasons, without its objects' names."""
    inner: BaseException | None = failure
    while inner is not None:
        innermost, within = inner, (getattr(inner, "reason", None), *inner.args)
        inner = next((each for each in within if isinstance(each, BaseException)), None)
    said = " ".join(str(innermost).split()) or type(innermost).__name__
    return re.sub(r"^\w+\([^()]*\): ", "", said).rstrip(".")[:120]
