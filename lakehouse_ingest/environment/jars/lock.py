"""The lock of the jars: `checksums.txt` holds of each the checksum, the size, and the path in a Maven repository."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LOCK = Path(__file__).with_name("checksums.txt")
ON_DEMAND = ("catalog-s3",)  # few need it: it is downloaded only for tables on S3


@dataclass(frozen=True)
class Jar:
    path: str  # below the root of a Maven repository
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


def _read(text: str) -> dict[str, list[Jar]]:
    kinds: dict[str, list[Jar]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, sha256, size, path = line.split()
            kinds.setdefault(kind, []).append(Jar(path, sha256, int(size)))
    return kinds


_LOCKED = _read(LOCK.read_text(encoding="utf-8"))
ALL_KINDS = tuple(_LOCKED)
# How many MB each of those has that every pipeline needs.
KINDS = {kind: round(sum(jar.size for jar in _LOCKED[kind]) / 2**20) for kind in ALL_KINDS if kind not in ON_DEMAND}


def locked(kind: str) -> Sequence[Jar]:
    return _LOCKED[kind]


def digest(kind: str) -> str:
    """Changes whenever one of the jars does."""
    return hashlib.sha256("".join(f"{jar.sha256} {jar.path}\n" for jar in locked(kind)).encode()).hexdigest()


def wrong_files(home: Path, wanted: Sequence[Jar]) -> dict[str, str]:
    """What keeps a folder from holding the wanted jars: each file's name, and why."""
    wrong = {}
    for jar in wanted:
        try:
            with (home / jar.name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != jar.sha256:
                    wrong[jar.name] = "has a wrong checksum"
        except OSError:
            wrong[jar.name] = "is missing"
    return wrong


def listed(wrong: dict[str, str]) -> str:
    """The first of them with its reason, and how many more there are."""
    name, why = next(iter(wrong.items()))
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{name} {why}{more}"
