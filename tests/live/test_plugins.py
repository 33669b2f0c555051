"""A source and a format of another distribution are found by their entry points, pass our suites, and are used."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import formats, sources
from lakehouse_ingest.stages.sources.kafka import consumers
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader
from lakehouse_ingest.testing.formats import CHECKS as FORMAT_CHECKS
from lakehouse_ingest.testing.formats import Check as FormatCheck
from lakehouse_ingest.testing.formats import Samples
from lakehouse_ingest.testing.sources import CHECKS as SOURCE_CHECKS
from lakehouse_ingest.testing.sources import Check as SourceCheck
from lakehouse_ingest.testing.sources import Filled
from tests.services.distributions import install
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import Pipelines, settings_text
from tests.services.plant_extras import LINES, Plant
from tests.services.readers import Reader

pytestmark = pytest.mark.live

SAMPLES = Samples(
    sound=[
        (b"kind=door;room=1", {"kind": "door", "room": "1"}),
        ("kind=Tür;open=".encode(), {"kind": "Tür", "open": ""}),
    ],
    broken=[(None, Reason.EMPTY), (b"", Reason.EMPTY), (b"a", Reason.BROKEN), (b"\xff=1", Reason.NOT_TEXT)],
    misfit=(b"room=one", "room", "long"),
    name="lines",
)
EVENTS = [
    b"kind=door;room=1",
    b"kind=window;room=2;open=yes",
    b"what",
    b"room=3",
    b"kind=door;room=one",
    b"kind=door;room=4",
]
WINDOWS = 'table = "windows"\ntypes = ["window"]'
DOORS = 'table = "doors"\ntypes = ["door"]\ncolumns = [{ name = "room", type = "long" }]'


class ImpatientPlant(Plant):
    """Waits less for records that do not come, but longer than the client waits for an unknown topic."""

    def reader(self, group: str, epoch: int) -> KafkaReader:
        return replace(super().reader(group, epoch), silence_s=8.0)


@pytest.fixture(scope="module")
def filled(broker: str) -> Iterator[Filled]:
    topic, values = "their_source", {0: [b"a=1", b"a=2", b"a=3", b"a=4"]}
    create_topic(broker, topic)
    produce(broker, topic, [(None, value) for value in values[0]])
    yield Filled(ImpatientPlant, SourceSettings(kind="plant", options={"servers": broker}), topic, values)
    consumers.let_go_all()


class TestPlugin:
    @pytest.mark.parametrize("check", FORMAT_CHECKS, ids=lambda check: check.__name__)
    def test_format_passes_our_suite(self, check: FormatCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(install(tmp_path, {formats.GROUP: {"lines": "LINES"}}))
        check(LINES, SAMPLES)

    @pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
    def test_source_passes_our_suite(self, filled: Filled, check: SourceCheck) -> None:
        check(filled)

    def test_source_and_format_are_used_by_a_pipeline(
        self, broker: str, rest_uri: str, topic: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        """In a process of its own: installing the package is enough, and no code of ours knows about it."""
        create_topic(broker, topic)
        produce(broker, topic, [(None, value) for value in EVENTS])
        install(tmp_path, {formats.GROUP: {"lines": "LINES"}, sources.GROUP: {"plant": "Plant"}})
        settings = settings_text(
            topic, "nowhere:1", rest_uri, topic, type_from="field:kind", table=f"{WINDOWS}\n[[streams.tables]]\n{DOORS}"
        )
        settings = settings.replace("[[streams]]\n", '[[streams]]\nformat = "lines"\n').replace(
            "[source]\n", f'[source]\nkind = "plant"\noptions = {{ servers = "{broker}" }}\n'
        )
        with Pipelines(tmp_path, jars_folder, environment={"PYTHONPATH": str(tmp_path)}) as pipelines:
            pipelines.drain(settings)
        reader = Reader(rest_uri, topic)
        doors = reader.table("doors").scan().to_arrow().to_pylist()
        assert sorted((row["_source"]["offset"], row["room"]) for row in doors) == [(0, 1), (5, 4)]
        (window,) = reader.table("windows").scan().to_arrow().to_pylist()
        assert (window["kind"], window["room"], window["open"]) == ("window", "2", "yes")
        dead = reader.table("dead_letters").scan().to_arrow().to_pylist()
        assert {(row["_source"]["offset"], row["reason"]) for row in dead} == {
            (2, Reason.BROKEN),
            (3, Reason.NO_TABLE),
            (4, Reason.WRONG_TYPE),
        }
