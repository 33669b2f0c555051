"""How far a former writer of a table has come, from what it has left behind: one file a kind of it.

What nothing tells is not guessed: it is named, and a person answers for it.
"""

from dataclasses import dataclass

from lakehouse_ingest.records import Offsets


@dataclass(frozen=True)
class Origin:
    """Of each partition the next offset to read."""

    says: str
    offsets: Offsets
    trusted: tuple[str, ...] = ()  # what nothing here can tell


def offsets_in(said: object) -> dict[tuple[str, int], int] | None:
    """Of `{"topic": {"0": 42}}`, as Spark writes it and people do; None where it is something else."""
    found: dict[tuple[str, int], int] = {}
    if not isinstance(said, dict):
        return None
    for topic, parts in said.items():
        if not isinstance(parts, dict):
            return None
        for number, offset in parts.items():
            # A truth value is a number to Python.
            if not (number.isascii() and number.isdecimal()) or type(offset) is not int or offset < 0:
                return None
            found[topic, int(number)] = offset
    return found
