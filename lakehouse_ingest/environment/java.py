"""Finds a Java that Spark 4.1 and the embedded servers run on: 17 or 21.

JAVA_HOME and PATH belong to the machine, not to our settings; only this module reads them.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from lakehouse_ingest.errors import SettingsRefused

WANTED = (17, 21)
USUAL = (
    (Path("/"), "usr/lib/jvm/*"),
    (Path("/"), "opt/java/*"),
    (Path("/"), "opt/jdk*"),
    (Path("/"), "Library/Java/JavaVirtualMachines/*/Contents/Home"),
    (Path.home(), ".sdkman/candidates/java/*"),
    (Path.home(), ".jdks/*"),
)


def find_java(environ: Mapping[str, str] | None = None, usual: Iterable[tuple[Path, str]] = USUAL) -> Path:
    """The first Java 17 or 21 among JAVA_HOME, PATH and the usual folders."""
    others: dict[Path, int] = {}
    for java in _candidates(os.environ if environ is None else environ, usual):
        found = version(java)
        if found in WANTED:
            return java
        if found is not None:
            others[java] = found
    if others:
        seen = ", ".join(f"Java {number} at {java}" for java, number in others.items())
        raise SettingsRefused(
            f"Spark 4.1 needs Java 17 or 21, found only {seen}: install one, or point JAVA_HOME at it."
        )
    raise SettingsRefused("No Java was found: install Java 17 or 21, or point JAVA_HOME at one.")


@cache
def version(java: Path) -> int | None:
    """The feature release (17 of 17.0.15), or None for a program that does not run."""
    try:
        said = subprocess.run(  # noqa: S603 - a Java that the machine itself names
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    release = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(release[1]) if release else None


def _candidates(environ: Mapping[str, str], usual: Iterable[tuple[Path, str]]) -> Iterator[Path]:
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    for start, pattern in usual:
        homes += sorted(start.glob(pattern))
    seen = set()
    for home in homes:
        java = home / "bin" / "java"
        if java.is_file() and java.resolve() not in seen:
            seen.add(java.resolve())
            yield java
