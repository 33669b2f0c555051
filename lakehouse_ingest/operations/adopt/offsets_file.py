"""A file with offsets that a person has found out."""

import json
from pathlib import Path

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.adopt import Origin, offsets_in


def of_file(file: Path) -> Origin:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise SettingsRefused(f"`--from-file` {file.name} can't be read: {broken}") from broken
    if not (offsets := offsets_in(document)):
        raise SettingsRefused(
            f'`--from-file` {file.name} should hold of each partition the next offset to read: {{"topic": {{"0": 42}}}}'
        )
    return Origin(
        f"the file {file.name}",
        offsets,
        ("that the tables hold all records below these offsets, and none from there on",),
    )
