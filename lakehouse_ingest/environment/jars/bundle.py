"""From the cache to a folder for machines without a network: there LAKEHOUSE_INGEST_JARS names it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lakehouse_ingest.environment.jars.fetch import _checksums, _named, _wrong, ensure
from lakehouse_ingest.errors import SettingsRefused, TryAgain


@dataclass(frozen=True)
class Bundled:
    """A kind's jars in the folder; `added` of them were not there, or were not what they should be."""

    jars: list[Path]
    added: int

    @property
    def megabytes(self) -> float:
        return sum(jar.stat().st_size for jar in self.jars) / 2**20


def bundle(kind: str, folder: Path) -> Bundled:
    """Makes `folder/kind`, or mends it; what the cache lacks is fetched first."""
    home, wanted = folder / kind, _checksums(kind)
    lacking = _wrong(home, wanted)
    if lacking:
        source = ensure(kind)[0].parent
        if changed := _wrong(source, {name: wanted[name] for name in lacking}):
            raise TryAgain(f"In {source} {_named(changed)}: run `lakehouse-ingest clean`, and this again.")
        try:
            home.mkdir(parents=True, exist_ok=True)
            for name in lacking:
                _put(source / name, home / name)
        except OSError as broken:
            raise SettingsRefused(
                f"The {kind} jars can't be put into {folder} ({broken.strerror}): name a folder that can be written, "
                "with room in it."
            ) from broken
    return Bundled(sorted(home / name for name in wanted), len(lacking))


def _put(jar: Path, place: Path) -> None:
    """It appears there whole, or not at all."""
    fresh = place.with_name(f"{place.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(jar, fresh)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(jar, fresh)
    fresh.replace(place)
