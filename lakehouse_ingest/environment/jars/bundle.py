"""Copies the cache into a folder for machines without a network, where LAKEHOUSE_INGEST_JARS names the folder."""

from dataclasses import dataclass
from pathlib import Path

from lakehouse_ingest.environment.jars.cache import ensure, place_file
from lakehouse_ingest.environment.jars.lock import listed, locked, wrong_files
from lakehouse_ingest.errors import SettingsRefused, TryAgain


@dataclass(frozen=True)
class Bundled:
    """The jars of a kind in the folder; `added` of them were missing there, or had a wrong checksum."""

    jars: list[Path]
    added: int

    @property
    def megabytes(self) -> float:
        return sum(jar.stat().st_size for jar in self.jars) / 2**20


def bundle(kind: str, folder: Path) -> Bundled:
    """Makes `folder/kind`, or completes it; what the cache lacks is downloaded first."""
    home, wanted = folder / kind, locked(kind)
    lacking = [jar for jar in wanted if wrong_files(home, [jar])]
    if lacking:
        source = ensure(kind)[0].parent
        if changed := wrong_files(source, lacking):
            raise TryAgain(f"In {source} {listed(changed)}: run `lakehouse-ingest clean`, then this again.")
        try:
            home.mkdir(parents=True, exist_ok=True)
            for jar in lacking:
                place_file(source / jar.name, home / jar.name)
        except OSError as broken:
            raise SettingsRefused(
                f"The {kind} jars can't be put into {folder} ({broken.strerror}): name a folder that can be written, "
                "with room in it."
            ) from broken
    return Bundled(sorted(home / jar.name for jar in wanted), len(lacking))
