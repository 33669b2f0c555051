"""What a catalog can answer, as exceptions; each leaf says what is known to have happened.

CatalogError
├── Unreachable          no answer, or "not now": the same call may work later
│   ├── FilesUnreachable the same, from the store of the tables' files
│   ├── FilesUnwritable  the local disk of the tables' files is full, or read-only
│   └── ClocksDiffer     a commit's times do not follow those of the table: it works once the clocks are right
├── Denied               the catalog forbids it
│   ├── NotLetIn         the catalog does not accept our credentials, or no longer does
│   └── FilesDenied      the store of the tables' files forbids it
├── TableMissing
│   └── TableReplaced    it was dropped, and another one has its name
├── NamespaceMissing
├── FileMissing          a table refers to a file that its store does not have
├── Conflict             a compare-and-set was refused: nothing of ours is visible
│   ├── BranchGone       because our branch was dropped: a newer writer has taken over
│   ├── FenceMoved       because somebody else has moved our branch
│   └── BranchExists     the branch that we wanted to create existed already
├── OutcomeUnknown       a commit was sent and no certain answer came back
├── CodeRefused          a table or the catalog names a class that an engine would load: see `class_names`
└── RequestRefused              the request itself is wrong: the same call will never work
    ├── BranchesRefused  the catalog allows no such branch
    ├── NamespaceRefused a namespace is missing, and the catalog will not create it
    ├── MetadataMissing  a table is registered, but its metadata file is gone: it must not be created again
    ├── FormatUnwritable the table has a format whose files only engines can rewrite
    └── FilesUnfit       the table changed, so files that wait for their commit do not fit: write their rows again
        └── LayoutMoved  its schema or partition layout did; the files may still fit, see `file_fit`

A message is one sentence and holds no secret. What a server says is cut, and stripped of everything in `secrets`. Its
own exception is not chained where it would show more.
"""

import errno
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

import requests
from pydantic import ValidationError as UnreadableAnswer
from pyiceberg import exceptions as iceberg
from urllib3 import exceptions as urllib3


class CatalogError(Exception):
    """The root of all that can go wrong between us and the catalog."""


class Unreachable(CatalogError):
    """The catalog did not answer, or said "not now"."""


class FilesUnreachable(Unreachable):
    """The store of the tables' files did not answer, or said "not now"."""


class FilesUnwritable(Unreachable):
    """The local disk of the tables' files is full, or read-only."""


class ClocksDiffer(Unreachable):
    """Some clock is more than a minute off, so Iceberg takes no commit: nothing of ours is visible."""


class Denied(CatalogError):
    """The catalog answered 403."""

    known_by: str = ""  # the property that told the catalog who we are, if there is one
    before: bool = False  # whether the catalog had accepted us before


class NotLetIn(Denied):
    """The catalog answered 401 or 419, or we got no token from the server that issues them."""


class FilesDenied(Denied):
    """The store of the tables' files does not know us, forbids it, or has no such bucket."""


class TableMissing(CatalogError):
    """There is no such table."""


class TableReplaced(TableMissing):
    """The table was dropped, and another one has its name."""


class NamespaceMissing(CatalogError):
    """There is no such namespace."""


class FileMissing(CatalogError):
    """A table refers to a file that its store does not have."""

    path: str = ""


class Conflict(CatalogError):
    """A compare-and-set was refused: nothing of ours is visible."""


class BranchGone(Conflict):
    """The branch that we write to was dropped: whoever dropped it has taken over."""


class FenceMoved(Conflict):
    """Our branch is not where we left it, though only we move it."""


class BranchExists(Conflict):
    """The branch that we wanted to create exists, and no request of ours created it."""


class OutcomeUnknown(CatalogError):
    """A commit was sent, and nobody can tell whether it took effect."""


class CodeRefused(CatalogError):
    """A table or the catalog names code that our own settings do not name."""


class RequestRefused(CatalogError):
    """The catalog or the table's format refuses the request as wrong."""


class BranchesRefused(RequestRefused):
    """A branch could not be created: some catalogs allow no ref but main."""


class NamespaceRefused(RequestRefused):
    """A namespace is missing, and the catalog will not create it for us."""


class MetadataMissing(RequestRefused):
    """A table is registered, but its metadata file is gone."""


class FormatUnwritable(RequestRefused):
    """The table has a newer format than those whose files can be rewritten from here."""


class FilesUnfit(RequestRefused):
    """The table changed after the files were written, or they can't be committed from here."""


class LayoutMoved(FilesUnfit):
    """The table's schema or partition layout is another one than the files were written for."""


# A proxy may answer with a whole page of HTML.
_LONGEST = 300
# How pyarrow reports what the store said, and which of these answers will not change by asking again.
_STORE_SAYS = re.compile(r"AWS Error .*", re.DOTALL)
_STORE_DENIES = re.compile(
    r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE"
    r"|MISSING_AUTHENTICATION_TOKEN|UNRECOGNIZED_CLIENT|NO_SUCH_BUCKET)|AWS Error [^:]*HTTP status 403"
)
# The metadata file of a registered table is gone. The table is not missing, so nobody must create another in its place.
_NO_METADATA = re.compile(r"(?=.*(?:NotFoundException|No such file)).*?(?P<file>[^\s'\"/]+\.metadata\.json)", re.DOTALL)
_TOO_NEW = "name another table, or take a newer release"
_UNKNOWN_TYPE = re.compile(r"Unsupported field type: (\S+)")
# Some catalogs apply a commit to newer metadata first, and notice only then that it does not fit. pyiceberg's own
# catalogs do, and Iceberg for Java does for a first snapshot: it calls the result invalid, and the request bad.
_LATE = re.compile(r"snapshot with sequence number \d+ (older|greater) than last sequence number")
# Iceberg for Java says this, in milliseconds. The two times are the catalog's and ours, in either order: an update
# carries the catalog's, a snapshot ours. Another writer's time may stand in place of either.
_CLOCK = re.compile(r"Invalid (?:update|snapshot) timestamp (\d+): before last [a-z ]*?(?:at )?(\d+)")
_CLOCKS_AGREE = 5.0  # seconds: if ours and the catalog's are that close, another writer's clock is wrong
_DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_PAGE = re.compile(r"(?is)<html.*?<title>\s*(.*?)\s*</title>")
_CREDENTIALS = re.compile(r"(?i)(\b(?:bearer|basic)\s+)[^\s\"',]+|(?<=://)[^/@\s]+@")
_BAD_REQUEST, _NOT_FOUND, _TOO_MANY_REQUESTS, _SERVER_ERROR, _NOT_IMPLEMENTED = 400, 404, 429, 500, 501
_BY_STATUS: dict[int, type[CatalogError]] = {
    401: NotLetIn,
    403: Denied,
    409: Conflict,
    419: NotLetIn,
    _TOO_MANY_REQUESTS: Unreachable,
    _NOT_IMPLEMENTED: RequestRefused,
}
_BY_TYPE: tuple[tuple[type[Exception], type[CatalogError]], ...] = (
    (iceberg.NoSuchTableError, TableMissing),
    (iceberg.NoSuchNamespaceError, NamespaceMissing),
    (iceberg.CommitFailedException, Conflict),
    (iceberg.OAuthError, NotLetIn),
    (PermissionError, FilesDenied),
    # Neither HTTP nor a mistake in the values: it comes from the warehouse's storage.
    (OSError, Unreachable),
    (Exception, RequestRefused),
)
_EXPECTED: tuple[type[Exception], ...] = (
    *(kind for kind, _ in _BY_TYPE[:-1]),
    iceberg.NamespaceAlreadyExistsError,
    iceberg.NoSuchIdentifierError,
    iceberg.RESTError,
    iceberg.TableAlreadyExistsError,
    iceberg.ValidationError,
    iceberg.ValidationException,
    requests.RequestException,
    NotImplementedError,
    TypeError,
    ValueError,
)


@contextmanager
def translated(what: str, secrets: Collection[str] = (), *, committing: bool = False) -> Iterator[None]:
    """Turn what pyiceberg and requests raise into this module's exceptions.

    `committing` says that a commit was sent, so a missing answer leaves its outcome unknown.
    """
    try:
        yield
    except CatalogError:
        raise
    except _EXPECTED as error:
        if gone := _NO_METADATA.search(str(error)):
            file = redacted(gone["file"], secrets)
            raise MetadataMissing(f"{what}: its file {file} is gone: restore it, or drop the table's entry") from None
        if clocks := _clocks(error):
            raise ClocksDiffer(f"{what}: {clocks}") from None
        kind = _kind(error, committing=committing)
        raise kind(f"{what}: {_reason(error, secrets)}") from None
    except Exception as error:
        if (found := _kind_of_a_databases(error, committing=committing)) is None:
            raise
        raise found(f"{what}: {_reason(getattr(error, 'orig', None) or error, secrets)}") from None


def _kind_of_a_databases(error: Exception, *, committing: bool) -> type[CatalogError] | None:
    """Tell failures of pyiceberg's SQL catalog by their names, for SQLAlchemy may not be installed."""
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "sqlalchemy.exc"}
    if "IntegrityError" in names:
        return Conflict  # two writers inserted the same row
    if "OperationalError" in names:
        return OutcomeUnknown if committing else Unreachable
    return RequestRefused if names else None


def _kind(error: Exception, *, committing: bool) -> type[CatalogError]:
    status = _status(error)
    if status is None and isinstance(error, requests.RequestException) and not isinstance(error, ValueError):
        return OutcomeUnknown if committing and not _never_sent(error) else Unreachable
    if isinstance(error, UnreadableAnswer):
        return OutcomeUnknown if committing else RequestRefused
    if committing and status == _NOT_FOUND:
        return TableMissing
    if status is not None and status not in _BY_STATUS and status >= _SERVER_ERROR:
        return OutcomeUnknown if committing else Unreachable
    if isinstance(error, OSError) and status is None and (found := _kind_of_the_files(error)):
        return found
    late = (status is None or (committing and status == _BAD_REQUEST)) and _LATE.search(str(error))
    by_type = Conflict if late else next(kind for expected, kind in _BY_TYPE if isinstance(error, expected))
    return by_type if by_type is not RequestRefused or status is None else _BY_STATUS.get(status, RequestRefused)


def _kind_of_the_files(error: OSError) -> type[CatalogError] | None:
    if _STORE_SAYS.search(str(error)):
        return FilesDenied if _STORE_DENIES.search(str(error)) else FilesUnreachable
    return FilesUnwritable if error.errno in _DISK_REFUSES else None


def _response(error: Exception) -> requests.Response | None:
    http_error = error if isinstance(error, requests.HTTPError) else error.__cause__
    found: requests.Response | None = getattr(http_error, "response", None)
    return found


def _status(error: Exception) -> int | None:
    response = _response(error)
    return None if response is None else int(response.status_code)


def _clocks(error: Exception) -> str:
    """Say which clock is wrong and by how much, as far as the answer tells; empty if this is another failure."""
    if not (found := _CLOCK.search(str(error))):
        return ""
    response = _response(error)
    gap = abs(int(found[1]) - int(found[2])) / 1000
    try:
        ahead = (
            time.time() - parsedate_to_datetime(response.headers["Date"] if response is not None else "").timestamp()
        )
    except (KeyError, ValueError):
        said = f"the clocks of this machine, the catalog and its other writers differ by {gap:.0f} s"
    else:
        said = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the catalog's"
        if abs(ahead) < _CLOCKS_AGREE:
            said = f"another writer's clock was {gap:.0f} s ahead of this machine's and the catalog's"
    return f"{said}, and Iceberg allows 60 s; set the clocks right (NTP), then it goes on by itself"


def _never_sent(error: requests.RequestException) -> bool:
    if isinstance(error, requests.ConnectTimeout):
        return True
    return isinstance(_root(error), urllib3.NewConnectionError)


def _root(error: Exception) -> object:
    """Unwrap what urllib3 found: the texts of requests' and urllib3's own wrappers repeat the whole URL."""
    inner = error.args[0] if error.args else error
    return getattr(inner, "reason", inner)


def _reason(error: Exception, secrets: Collection[str]) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, UnreadableAnswer):
        return _unread(error)
    if isinstance(error, OSError) and error.errno in _DISK_REFUSES:
        return os.strerror(error.errno)  # pyarrow puts the file's whole path before it
    text = str(_root(error)) if isinstance(error, requests.RequestException) else str(error)
    # In front of it pyarrow names the file at length, which may be all that is left after the cut.
    text = found[0] if (found := _STORE_SAYS.search(text)) else text
    # For a page of HTML, its title is enough.
    text = page[1] if (page := _PAGE.search(text)) else text
    return redacted(" ".join(text.split()), secrets)[:_LONGEST] or type(error).__name__


def _unread(error: UnreadableAnswer) -> str:
    """Say what could not be read in an answer; it may be a table that is too new for this release."""
    for each in error.errors(include_url=False, include_input=False):
        if each["type"] == "union_tag_invalid" and "format-version" in each.get("ctx", {}).get("discriminator", ""):
            known = each["ctx"]["expected_tags"]
            return f"the table has format version {each['ctx']['tag']}, and understood are {known}; {_TOO_NEW}"
        if found := _UNKNOWN_TYPE.search(each["msg"]):
            return f"the table has a column of type {found[1]}, which is not understood; {_TOO_NEW}"
    return "the answer is not one of an Iceberg REST catalog; see what answers there"


def redacted(text: str, secrets: Collection[str]) -> str:
    """Remove the secrets from the text, and whatever looks like a credential in a header or a URL."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return _CREDENTIALS.sub(lambda found: f"{found[1] or ''}***", text)
