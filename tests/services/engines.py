"""Which real engines this machine has; one line each at the head of a test run."""

import importlib.metadata
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakehouse_ingest.environment import jars, java
from lakehouse_ingest.errors import LakehouseError
from tests.services import browser, collector, debian, minio, prometheus

EXTENSIONS = ("iceberg", "avro", "httpfs")
LEAD = {"broker": "kafka_2.13", "catalog": "iceberg-core", "spark": "iceberg-spark-runtime"}


@dataclass(frozen=True)
class Engine:
    name: str
    found: bool
    said: str
    required: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {'' if self.found else 'not found, '}{self.said}"


def engines(environ: Mapping[str, str]) -> list[Engine]:
    """With CI=true what is fetched or built is so here and now, as every one of them is required there."""
    return [
        _java(),
        *(_jars(kind, environ) for kind in ("broker", "catalog", "spark")),
        _duckdb(),
        _built("minio", minio.binary(), minio.VERSION, minio.build, environ),
        _built("collector", collector.binary(), collector.VERSION, collector.build, environ),
        _packaged("prometheus", prometheus.programs, environ, there=debian.kept("prometheus").exists()),
        _packaged("chromium", browser.programs, environ, there=shutil.which("chromedriver") is not None),
        _docker(),
    ]


def _java() -> Engine:
    try:
        found = java.find_java()
    except LakehouseError as error:
        return Engine("java", found=False, said=str(error))
    return Engine("java", found=True, said=f"{java.version(found)} ({found})")


def _jars(kind: str, environ: Mapping[str, str]) -> Engine:
    folder = jars.jars_folder_from(environ)
    name = f"{kind} jars"
    if folder is None and not jars.present(kind) and environ.get("CI") != "true":
        said = f"yet to be downloaded by the first test that needs them ({jars.KINDS[kind]} MB)"
        return Engine(name, found=False, said=said)
    try:
        files = jars.ensure(kind, folder=folder)
    except LakehouseError as error:
        return Engine(name, found=False, said=str(error))
    lead = min((file.stem for file in files if file.name.startswith(LEAD[kind])), key=len)
    return Engine(name, found=True, said=f"{lead} and {len(files) - 1} others in {files[0].parent}")


def _duckdb() -> Engine:
    try:
        version = importlib.metadata.version("duckdb")
        others = {name: importlib.metadata.version(f"duckdb-extension-{name}") for name in EXTENSIONS}
    except importlib.metadata.PackageNotFoundError as error:
        return Engine("duckdb", found=False, said=f"{error.name} is not installed")
    said = ", ".join(f"{name} {other}" for name, other in others.items())
    return Engine("duckdb", found=True, said=f"{version} with {said}")


def _built(name: str, binary: Path, version: str, build: Callable[[], Path], environ: Mapping[str, str]) -> Engine:
    """By Go."""
    if not binary.exists() and shutil.which("go") is None:
        return Engine(name, found=False, said="not built yet, and there is no Go to build it")
    if not binary.exists() and environ.get("CI") != "true":
        return Engine(name, found=True, said="yet to be built by the first test that needs it (some minutes)")
    try:
        return Engine(name, found=True, said=f"{version} ({build()})")
    except subprocess.SubprocessError as failure:
        said = getattr(failure, "stderr", None) or str(failure)
        return Engine(name, found=False, said=f"it could not be built: {said.strip().splitlines()[-1]}")


def _packaged(
    name: str, programs: Callable[[], tuple[Path, Path]], environ: Mapping[str, str], *, there: bool
) -> Engine:
    """By Debian."""
    if not there and not shutil.which(name):
        if shutil.which("apt-get") is None:
            return Engine(name, found=False, said="not installed, and there is no apt-get to get it")
        if environ.get("CI") != "true":
            return Engine(name, found=True, said="yet to be fetched by the first test that needs it")
    try:
        first, _ = programs()
    except debian.NotToBeHad as failure:
        return Engine(name, found=False, said=str(failure))
    return Engine(name, found=True, said=f"{debian.version(first)} ({first})")


def _docker() -> Engine:
    if shutil.which("docker") is None:
        return Engine("docker", found=False, said="no such command", required=False)
    try:
        asked = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Engine("docker", found=False, said="no answer within 10 seconds", required=False)
    if asked.returncode != 0:
        return Engine("docker", found=False, said="no engine answers", required=False)
    return Engine("docker", found=True, said=asked.stdout.strip(), required=False)
