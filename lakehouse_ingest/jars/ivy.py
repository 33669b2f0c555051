"""Runs Ivy, and reads from what it prints how far it is. Ivy knows the central repository by itself."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from lakehouse_ingest.errors import TryAgain

PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
# A network that swallows packets must end as a failed download, not as a program that hangs.
PATIENCE = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")
BY_HAND = "get the files of checksums.txt otherwise and name their folder in LAKEHOUSE_INGEST_JARS"


def retrieve(java: Path, lock: Path, *, into: Path, cache: Path, log: Path) -> Iterator[tuple[int, str]]:
    """Puts the lock's files into a folder; yields how many are done, and the name of the one on its way."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [
        str(java),
        *PATIENCE,
        f"-Divy.default.ivy.user.dir={cache}",
        "-cp",
        str(ivy),
        "org.apache.ivy.Main",
    ]
    command += ["-ivy", str(lock), "-cache", str(cache), "-retrieve", f"{into}/{PATTERN}"]
    done, said = 0, []
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running,
    ):
        try:
            for line in running.stdout or ():
                kept.write(line)
                said.append(line)
                if line.startswith("downloading "):
                    yield done, line.split()[1].rsplit("/", 1)[-1]
                elif "[SUCCESSFUL ]" in line:
                    done += 1
        except BaseException:
            running.kill()
            raise
    if running.returncode != 0:
        raise TryAgain(
            f"The {lock.stem} jars could not be downloaded ({_problem(said)}; all of it in {log}): see "
            f"that the network is there and run again, or {BY_HAND}."
        )


def _problem(said: list[str]) -> str:
    """Ivy's first complaint that says something, without the address."""
    for line in said:
        reason = re.search(
            r"(UnknownHost|ConnectException|timed out|UNRESOLVED DEPENDENCY|\[FAILED +\]|Exception).*", line
        )
        if reason:
            return re.sub(r"\S*://\S*", "…", reason[0]).strip(" ()")[:160]
    return "Ivy did not say why"
