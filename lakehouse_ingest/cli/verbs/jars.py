"""`lakehouse-ingest jars bundle`: a folder of everything that would be downloaded, to carry to where nothing can be."""

from collections.abc import Sequence
from pathlib import Path

from lakehouse_ingest.environment.class_archive import archive, prepare
from lakehouse_ingest.environment.jars import bundle as bundling
from lakehouse_ingest.environment.jars.fetch import KINDS, ON_DEMAND
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import SettingsRefused

ALL = (*KINDS, *ON_DEMAND)


def warm() -> None:
    java = find_java()
    made = prepare(java)
    console = Terminal(soft_wrap=True)
    console.print(f"{archive(java)}: {'made' if made else 'was there already'}; `lakehouse-ingest clean` removes it.")


def bundle(folder: Path, kinds: Sequence[str] | None = None) -> None:
    """All kinds, or only those."""
    for kind in kinds or ():
        if kind not in ALL:
            raise SettingsRefused(f"There are no jars for {kind}, but for {', '.join(ALL)}.")
    console = Terminal(soft_wrap=True)
    folder = folder.absolute()
    for kind in kinds or ALL:
        made = bundling.bundle(kind, folder)
        said = f"{made.added} of them new" if made.added else "all of them there already"
        console.print(f"{folder / kind}: {len(made.jars)} jars, {made.megabytes:.1f} MB, {said}")
    console.print(
        f"Carry {folder} to the machine without a network, and set LAKEHOUSE_INGEST_JARS there to where it lies."
    )
