"""The jars of peers, in a lock and a cache of their own: a user of lakehouse-ingest never downloads them."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lakehouse_ingest.environment.jars import cache, cache_folder
from lakehouse_ingest.environment.jars.download import download
from lakehouse_ingest.environment.jars.lock import Jar, wrong_files
from tests.services.engine import built

LOCK = Path(__file__).with_name("jars.lock")  # its lines are those of lakehouse_ingest/environment/jars/checksums.txt


def locked(peer: str) -> Sequence[Jar]:
    lines = (line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    return [Jar(path, sha256, int(size)) for kind, sha256, size, path in lines if kind == peer]


def fetched(peer: str) -> list[Path]:
    """The verified jars, downloaded if need be. What the product has downloaded for itself is not downloaded again."""
    wanted = locked(peer)
    digest = hashlib.sha256("".join(jar.sha256 for jar in wanted).encode()).hexdigest()
    home = built(cache_folder() / "engines" / f"{peer}-{digest[:12]}", partial(_fetch, peer, wanted))
    if wrong := wrong_files(home, wanted):
        raise RuntimeError(f"The jars of {peer} in {home} are not those of the lock: {wrong}")
    return sorted(home / jar.name for jar in wanted)


def _fetch(peer: str, wanted: Sequence[Jar], fresh: Path) -> Path:
    jars = fresh / "jars"
    jars.mkdir()
    cache._take_from_older_folders(wanted, cache_folder(), jars)
    if lacking := [jar for jar in wanted if not (jars / jar.name).exists()]:
        megabytes = sum(jar.size for jar in lacking) / 2**20
        print(f"Downloading {len(lacking)} jars of {peer} into {fresh.parent} ({megabytes:.0f} MB)", flush=True)
        for _ in download(peer, lacking, jars):
            pass
    return jars
