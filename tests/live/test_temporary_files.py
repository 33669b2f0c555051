"""A service that is killed now and then for months does not fill the temporary folder."""

from pathlib import Path

import pytest

from tests.services.feeding import fill
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, settings_text

pytestmark = pytest.mark.live

OURS = "lakehouse-ingest-*"
EVENTS = 100


class TestTemporaryFiles:
    def test_of_a_killed_start_are_removed_by_the_next_one(
        self, bench: Bench, topic: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        """Java leaves there what it has unpacked for Spark and for the embedded catalog."""
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        create_topic(bench.broker, topic, 2)
        fill(bench.broker, topic, EVENTS, 2)
        text = settings_text(topic, bench.broker, None, topic)
        text = text.replace("[catalog]\n", f'[catalog]\npath = "{tmp_path}/warehouse"\n')
        with Pipelines(tmp_path, jars_folder, environment={"TMPDIR": str(temporary)}) as pipelines:
            killed = pipelines.start(text)
            killed.wait_for("batch_landed")
            assert [*temporary.glob(f"{OURS}/sqlite-*")], "of the catalog"
            assert [*temporary.glob(f"{OURS}/java/*")], "of Spark"
            killed.end()
            left = {*temporary.iterdir()}
            assert left, "nobody has removed it"
            assert left == {*temporary.glob(OURS)}
            pipelines.drain(text)
        assert [*temporary.iterdir()] == []
