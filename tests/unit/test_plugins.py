"""What a setting names is ours or of another distribution; what it can't be is one sentence, before anything starts."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.storage.local_files import LocalFiles
from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.errors import LONGEST, SettingsRefused
from lakehouse_ingest.pipeline.assembly import refuse_early
from lakehouse_ingest.settings import CatalogSettings, S3Settings, load_settings
from lakehouse_ingest.stages import formats, sources
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.distributions import install

OURS = import_module(formats.FORMATS["json"])
OFFERED = {
    formats.GROUP: {"lines": "LINES", "json": "LINES", "gone": "nothing_at_all:LINES", "unfinished": "Unfinished"},
    sources.GROUP: {"plant": "Plant", "kafka": "Plant", "unfinished": "Unfinished"},
}


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, OFFERED))


def refused(stream: dict[str, Any] | None = None, source: dict[str, Any] | None = None) -> str:
    settings = load_settings(None, {"streams": [{"topics": ["t"], **(stream or {})}], "source": source or {}}, {})
    with pytest.raises(SettingsRefused) as caught:
        refuse_early(settings, allow_code=False)
    said = str(caught.value)
    assert len(said) <= LONGEST
    return said


class TestPlugin:
    @pytest.mark.parametrize("name", formats.FORMATS)
    def test_of_ours_in_the_list_of_formats_can_be_loaded(self, name: str) -> None:
        assert formats.chosen(name)

    def test_is_ours_without_another_package(self) -> None:
        assert formats.chosen("json") is OURS
        settings = load_settings(None, {"streams": [{"topics": ["t"]}]}, {})
        assert sources.chosen(settings.source) is Kafka
        assert refuse_early(settings, allow_code=False) == [None]

    def test_that_nobody_offers_is_refused_with_what_there_is(self) -> None:
        assert refused({"format": "jason"}).endswith("there is json; did you mean json?")
        assert refused({"format": "xml"}) == (
            "`streams.format` names 'xml', which is not installed: there is json; a package may offer more by an entry"
            " point of lakehouse_ingest.formats"
        )
        assert refused(source={"kind": "kafak"}).startswith("`source.kind` names 'kafak'")
        assert refused(source={"kind": "x" * 500})

    @pytest.mark.usefixtures("_installed")
    def test_of_another_package_cannot_take_our_names(self) -> None:
        settings = load_settings(
            None, {"streams": [{"topics": ["t"]}], "source": {"kind": "plant", "options": {"servers": "x:1"}}}, {}
        )
        assert sources.chosen(settings.source).__name__ == "Plant"
        assert type(formats.chosen("lines")).__name__ == "Lines"
        assert formats.chosen("json") is OURS
        assert sources.chosen(load_settings(None, {"streams": [{"topics": ["t"]}]}, {}).source) is Kafka
        assert "there is gone, json, lines, unfinished; did you mean lines?" in refused({"format": "line"})

    @pytest.mark.usefixtures("_installed")
    def test_that_cannot_be_used_gives_the_reason(self) -> None:
        assert refused({"format": "gone"}).startswith(
            "`streams.format` names gone, which can't be loaded: ModuleNotFoundError"
        )
        assert "(plant_extras:Unfinished), which lacks something of a Format" in refused({"format": "unfinished"})
        assert "which lacks something of a Source" in refused(source={"kind": "unfinished"})
        assert refused(source={"kind": "plant"}) == "`source.options` should say with `servers` where the plant is"


class TestStore:
    @pytest.mark.parametrize(
        ("location", "kind"),
        [
            ("file:///tmp/t", LocalFiles),
            ("file:/tmp/t", LocalFiles),
            ("/tmp/t", LocalFiles),
            ("s3://bucket/t", S3),
            ("S3A://b/t", S3),
        ],
    )
    def test_is_found_by_the_scheme_of_a_location(self, location: str, kind: type) -> None:
        assert storage.known(location)
        assert isinstance(storage.at(location, CatalogSettings(), S3Settings()), kind)

    def test_that_nobody_offers_is_refused_only_where_we_need_it(self) -> None:
        assert not storage.known("gs://bucket/t")
        with pytest.raises(SettingsRefused, match=r"`catalog\.warehouse` names 'gs'.*there is file, s3, s3a"):
            storage.at("gs://bucket/t", CatalogSettings(), S3Settings())
        told = storage.for_both_clients(CatalogSettings(uri="http://c", warehouse="gs://bucket"), S3Settings())
        assert [type(each) for each in told] == [S3]
