"""`lakehouse-ingest jars`: the jars for machines without a network, and Spark's classes for faster starts."""

from collections.abc import Sequence
from pathlib import Path

from lakehouse_ingest.environment.class_archive import prepare
from lakehouse_ingest.environment.jars import ALL_KINDS
from lakehouse_ingest.environment.jars import bundle as bundling
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.printable import many


def warm() -> None:
    console = Terminal(soft_wrap=True)
    for archive, made in prepare(find_java()).items():
        console.print(f"{archive}: {'made' if made else 'was there already'}; `lakehouse-ingest clean` removes it.")


def bundle(folder: Path, kinds: Sequence[str] | None = None) -> None:
    """Makes a folder with the jars of these kinds, or of all."""
    for kind in kinds or ():
        if kind not in ALL_KINDS:
            raise SettingsRefused(f"There are no jars for {kind}: choose from {', '.join(ALL_KINDS)}.")
    console = Terminal(soft_wrap=True)
    folder = folder.absolute()
    for kind in kinds or ALL_KINDS:
        made = bundling.bundle(kind, folder)
        state = f"{made.added} of them new" if made.added else "all of them there already"
        console.print(f"{folder / kind}: {many(len(made.jars), 'jar')}, {made.megabytes:.1f} MB, {state}")
    console.print(f"Carry {folder} to the machine without a network, and set LAKEHOUSE_INGEST_JARS there to its path.")
