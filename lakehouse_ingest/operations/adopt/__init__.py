"""How far another writer of a table has come, read from what it has left behind: one file for each kind of writer.

Nothing is guessed. What can't be found out is named, and a person answers for it.
"""

from dataclasses import dataclass

from lakehouse_ingest.records import Offsets


@dataclass(frozen=True)
class Origin:
    """Where another writer ended: of each partition the next offset to read."""

    says: str
    offsets: Offsets
    trusted: tuple[str, ...] = ()  # what can't be found out, and a person answers for


def offsets_in(document: object) -> dict[tuple[str, int], int] | None:
    """The offsets of `{"topic": {"0": 42}}`, as Spark and people write it; None for anything else."""
    found: dict[tuple[str, int], int] = {}
    if not isinstance(document, dict):
        return None
    for topic, parts in document.items():
        if not isinstance(parts, dict):
            return None
        for number, offset in parts.items():
            # `True` is an int to Python, so the type has to be exactly `int`.
            if not (number.isascii() and number.isdecimal()) or type(offset) is not int or offset < 0:
                return None
            found[topic, int(number)] = offset
    return found
