"""The jars of peers, in a lock and a cache of their own: a user of lakehouse-ingest never downloads them."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from lakehouse_ingest.environment.jars import cache, cache_folder
from lakehouse_ingest.environment.jars.download import download
from lakehouse_ingest.environment.jars.lock import Jar, wrong_files

LOCK = Path(__file__).with_name("jars.lock")  # its lines are those of lakehouse_ingest/environment/jars/checksums.txt


def locked(peer: str) -> Sequence[Jar]:
    lines = (line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    return [Jar(path, sha256, int(size)) for kind, sha256, size, path in lines if kind == peer]


def fetched(peer: str) -> list[Path]:
    """The verified jars, downloaded if need be. What the product has downloaded for itself is not downloaded again."""
    wanted = locked(peer)
    digest = hashlib.sha256("".join(jar.sha256 for jar in wanted).encode()).hexdigest()
    home = cache_folder() / "engines" / f"{peer}-{digest[:12]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_suffix(".lock")):
        if not home.exists():
            fresh = home.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            cache._take_from_older_folders(wanted, cache_folder(), fresh)
            if lacking := [jar for jar in wanted if not (fresh / jar.name).exists()]:
                megabytes = sum(jar.size for jar in lacking) / 2**20
                print(f"Downloading {len(lacking)} jars of {peer} into {home} ({megabytes:.0f} MB)", flush=True)
                for _ in download(peer, lacking, fresh):
                    pass
            fresh.rename(home)
    if wrong := wrong_files(home, wanted):
        raise RuntimeError(f"The jars of {peer} in {home} are not those of the lock: {wrong}")
    return sorted(home / jar.name for jar in wanted)
