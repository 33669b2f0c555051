"""Somebody else's distribution, installed into a folder: what it registers is found once the folder is on the path."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.services import plant_extras

NAME = "plant_extras"


def install(folder: Path, entry_points: Mapping[str, Mapping[str, str]]) -> Path:
    """By group and name the part of the module that is offered; for another module it is named before a colon."""
    assert plant_extras.__file__
    shutil.copy(plant_extras.__file__, folder / f"{NAME}.py")
    metadata = folder / f"{NAME}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    lines = []
    for group, offered in entry_points.items():
        values = {name: part if ":" in part else f"{NAME}:{part}" for name, part in offered.items()}
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in values.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
