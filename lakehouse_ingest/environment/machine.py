"""How much memory this machine or container has."""

import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def memory(groups: Path = GROUPS, own: Path = OWN_GROUPS) -> int:
    """Bytes that our processes may use together: what is there, or less if a control group says so."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([there, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> Iterator[int]:
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = groups / "memory" if controllers else groups
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        # Each group above ours has a limit as well. Within a container, ours may be shown at the top.
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            yield from _number_in(folder / name)
            if folder == top:
                break


def _number_in(file: Path) -> Iterator[int]:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return
    if text.isdecimal():  # "max" is none
        yield int(text)
