"""`lakehouse-ingest check`: one line for each thing, in order or not. It leaves nothing behind."""

import os
import re
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import pytest

from lakehouse_ingest.cli.verbs.check import check
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.ledger.keys import PROBE
from lakehouse_ingest.operations import check as checks
from lakehouse_ingest.settings import Settings
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.lax import LaxCatalog
from tests.services.numbered_events import events
from tests.services.pipelines import JAVA_OPTIONS, settings_text

pytestmark = pytest.mark.live

EVERYTHING = [
    *("settings", "java", "packages", "jars", "topics", "catalog", "table", "pyiceberg", "publish", "tables", "spark")
]


def checked(settings: Path, environment: dict[str, str]) -> tuple[int, dict[str, str], str]:
    """In a process of its own: it starts a Spark."""
    ended = subprocess.run(
        [sys.executable, "-m", "lakehouse_ingest", "check", "--config", settings],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**environment, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
    )
    lines = [re.split(r" +", line, maxsplit=2) for line in ended.stdout.splitlines()]
    return ended.returncode, {name: mark for mark, name, _ in lines}, ended.stdout + ended.stderr


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


class TestCheck:
    def test_finds_everything_in_order_and_leaves_nothing_behind(
        self, bench: Bench, topic: str, tmp_path: Path, warehouse: Path
    ) -> None:
        create_topic(bench.broker, topic, 2)
        produce(bench.broker, topic, events(range(10), 2))
        settings = tmp_path / "p.toml"
        settings.write_text(settings_text(topic, bench.broker, bench.uri, f"check_{topic}.inner"))
        namespaces, before = bench.lake.list_namespaces(), files(warehouse)
        code, marks, said = checked(settings, dict(os.environ))
        assert code == 0, said
        assert marks == dict.fromkeys(EVERYTHING, "ok"), said
        assert f"{topic} at cluster " in said
        assert "2 partitions, 10 offsets, one record read" in said
        assert bench.lake.list_namespaces() == namespaces
        assert files(warehouse) == before

    def test_names_each_table_that_it_could_not_drop(self, bench: Bench, topic: str, tmp_path: Path) -> None:
        create_topic(bench.broker, topic)
        produce(bench.broker, topic, events(range(10), 1))
        settings, namespace = tmp_path / "p.toml", f"check_{topic}"
        bench.lake.create_namespace(namespace)
        with LaxCatalog(bench.uri) as front:
            front.fail(HTTPStatus.FORBIDDEN, method="DELETE", path=PROBE, times=9)
            settings.write_text(settings_text(topic, bench.broker, front.uri, namespace))
            code, marks, said = checked(settings, dict(os.environ))
        left = [name for _, name in bench.lake.list_tables(namespace)]
        assert len(left) == 2
        assert all(f"dropping table {namespace}.{name}" in said for name in left), said
        assert marks == {**dict.fromkeys(EVERYTHING, "ok"), "tidying": "no"}, said
        assert code

    def test_keeps_a_warehouse_that_another_program_creates_meanwhile(
        self, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars_folder: Path | None
    ) -> None:
        """There was none when `check` began, and it removes only what it created."""
        table = tmp_path / "warehouse" / "a table"

        def made_by_another(*_: object) -> tuple[str, str]:
            table.mkdir(parents=True, exist_ok=True)
            raise TryAgain("enough was tried")

        monkeypatch.setattr(checks, "_table", made_by_another)
        settings = Settings.model_validate(
            {"name": "plant", "streams": [{"topics": [topic]}], "catalog": {"path": tmp_path / "warehouse"}}
        )
        assert check(settings, jars=jars_folder) == TryAgain.exit_code
        assert [*tmp_path.rglob("*")] == [table.parent, table]

    def test_refuses_a_place_where_no_warehouse_can_be_created(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SettingsRefused, match=f"{tmp_path}/file can't be written: choose another place"):
            checks._refuse_where_nothing_can_be_made(tmp_path / "file" / "warehouse")
        checks._refuse_where_nothing_can_be_made(tmp_path / "not" / "there")

    def test_names_a_missing_topic_and_tries_everything_else(self, bench: Bench, topic: str, tmp_path: Path) -> None:
        settings = tmp_path / "p.toml"
        text = settings_text(topic, bench.broker, None, topic)
        settings.write_text(text.replace("[catalog]\n", f'[catalog]\npath = "{tmp_path}/warehouse"\n'))
        code, marks, said = checked(settings, dict(os.environ))
        assert code == 4, said
        assert marks == {**dict.fromkeys(EVERYTHING, "ok"), "topics": "no"}, said
        assert f"the topic {topic} is not there" in said
        assert not (tmp_path / "warehouse").exists()
