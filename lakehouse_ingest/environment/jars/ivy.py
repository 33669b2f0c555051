"""Runs Ivy, and reads from what it prints how far it is. Ivy knows the central repository by itself.

Where there is a mirror it is asked instead, and nobody else: the checksums say whether it has the same files.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from lakehouse_ingest.environment.proxies import java_properties
from lakehouse_ingest.errors import SettingsRefused, TryAgain

PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
# A network that swallows packets must end as a failed download, not as a program that hangs.
PATIENCE = {"sun.net.client.defaultConnectTimeout": "20000", "sun.net.client.defaultReadTimeout": "60000"}
BY_HAND = "get the files of checksums.txt otherwise and name their folder in LAKEHOUSE_INGEST_JARS"
MIRROR = "LAKEHOUSE_INGEST_JARS_MIRROR"
OPTIONS = "java.options"
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root={root}/></resolvers>
</ivysettings>
"""


def retrieve(
    java: Path, lock: Path, *, into: Path, cache: Path, log: Path, environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[int, str]]:
    """Puts the lock's files into a folder; yields how many are done, and the name of the one on its way."""
    cache.mkdir(parents=True, exist_ok=True)
    mirror = _mirror(environ)
    command = [str(java), *_options(cache, environ), *_settings(cache, mirror)]
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
        finally:
            (cache / OPTIONS).unlink()
    if running.returncode != 0:
        there = f"the repository in {MIRROR} has them" if mirror else "the network is there"
        raise TryAgain(
            f"The {lock.stem} jars could not be downloaded ({_problem(said)}; all of it in {log}): see "
            f"that {there} and run again, or {BY_HAND}."
        )


def _options(cache: Path, environ: Mapping[str, str]) -> list[str]:
    """A proxy's password may be among them, and a command line is seen by anyone on this machine: a file is not."""
    properties = {**PATIENCE, **java_properties(cache, environ), "ivy.default.ivy.user.dir": str(cache)}
    options = cache / OPTIONS
    options.unlink(missing_ok=True)
    options.touch(mode=0o600)
    options.write_text("".join(f"{json.dumps(f'-D{name}={value}')}\n" for name, value in properties.items()))
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    return [f"@{options}", "-cp", str(ivy), "org.apache.ivy.Main"]


def _settings(cache: Path, mirror: str | None) -> list[str]:
    if not mirror:
        return []
    settings = cache / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=quoteattr(mirror)))
    return ["-settings", str(settings)]


def _mirror(environ: Mapping[str, str]) -> str | None:
    mirror = environ.get(MIRROR)
    if mirror and not re.match(r"(https?://[^/@\s]+|file:/)[^@\s]*$", mirror):
        raise SettingsRefused(
            f"{MIRROR} should be the http://, https:// or file:// address of a Maven repository, without a password."
        )
    return mirror or None


def _problem(said: list[str]) -> str:
    """Ivy's first complaint that says something, without the address."""
    for line in said:
        reason = re.search(
            r"(UnknownHost|ConnectException|timed out|[^\s:]+: .*not found|\[FAILED +\]|Exception).*", line
        )
        if reason:
            return re.sub(r"\S*://\S*", "…", reason[0]).strip(" ()")[:160]
    return "Ivy did not say why"
