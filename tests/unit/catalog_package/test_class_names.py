"""A class that a table or a catalog names is never loaded; well-known ones are, and what our own settings name."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyiceberg
import pytest
from pyiceberg.table.locations import SimpleLocationProvider, load_location_provider

from catalog import CatalogClient, CodeRefused, Connection, connect, load, load_for_engines
from catalog.class_names import JAVA, LOCATION_PROVIDER, PYTHON
from lakehouse_ingest.errors import LONGEST, NeedsOperator
from lakehouse_ingest.tables import PipelineTables
from tests.unit.catalog_package.test_errors import METADATA, serving

NAME = "iot.sensors"
S3 = "org.apache.iceberg.aws.s3.S3FileIO"
FOREIGN = "com.example.Planted"
MODULE = """
from pathlib import Path
Path({proof!r}).touch()
class Planted:
    def __init__(self, *args, **kwargs): ...
    def auth_header(self): return None
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a class on the path; if anybody imports its module, that makes a file, which fails the test."""
    proof = tmp_path / "has_run"
    (tmp_path / "planted_here.py").write_text(MODULE.format(proof=str(proof)))
    monkeypatch.syspath_prepend(tmp_path)
    yield "planted_here.Planted"
    assert not proof.exists()
    assert sys.modules.pop("planted_here", None) is None


@contextmanager
def served(properties: Mapping[str, str] | None = None, **given: Mapping[str, Any]) -> Iterator[str]:
    """A catalog with one table of these properties; `given`: the parts of its answers that name something."""
    configured = {part: given.get(part, {}) for part in ("defaults", "overrides")}
    place = METADATA["location"]
    table = {
        "metadata-location": f"{place}/v1.metadata.json",
        "metadata": {**METADATA, "properties": properties or {}},
        "config": given.get("config", {}),
        "storage-credentials": [{"prefix": place, "config": given.get("credentials", {})}],
    }
    with serving(lambda request: (200, json.dumps(configured if "/v1/config" in request.path else table))) as uri:
        yield uri


@contextmanager
def opened(uri: str, **properties: str) -> Iterator[CatalogClient]:
    lake = connect(Connection(uri, properties=properties))
    try:
        yield lake
    finally:
        lake.close()


class TestTable:
    def test_loads_no_class_that_its_properties_name(self, planted: str) -> None:
        named = {"py-io-impl": planted, "write.py-location-provider.impl": planted, "s3.retry-strategy-impl": planted}
        with served(named) as uri, opened(uri) as lake:
            table = lake.table(NAME)
            assert type(load_location_provider(table.location(), table.properties)) is SimpleLocationProvider

    def test_says_nothing_of_how_its_files_are_reached(self) -> None:
        """Or whoever alters it could have our rows sent elsewhere; Iceberg for Java does not ask it either."""
        with (
            served({"s3.endpoint": "http://evil"}, config={"s3.region": "x"}) as uri,
            opened(uri, **{"s3.endpoint": "http://ours"}) as lake,
        ):
            found = lake.table(NAME).io.properties
        assert (found["s3.endpoint"], found["s3.region"]) == ("http://ours", "x")

    def test_is_refused_to_engines_where_it_names_a_location_provider(self) -> None:
        with served({LOCATION_PROVIDER: FOREIGN}) as uri:
            with opened(uri) as lake:
                assert load(lake, NAME).properties == {LOCATION_PROVIDER: FOREIGN}
                with pytest.raises(CodeRefused, match=f"{NAME} sets {LOCATION_PROVIDER} to '{FOREIGN}'"):
                    load_for_engines(lake, NAME)
            with opened(uri, **{LOCATION_PROVIDER: FOREIGN}) as lake:
                load_for_engines(lake, NAME)

    @pytest.mark.parametrize("where", ["config", "credentials"])
    @pytest.mark.parametrize("key", sorted(JAVA))
    def test_is_refused_where_its_config_names_a_class(self, key: str, where: str) -> None:
        with served(**{where: {key: FOREIGN}}) as uri:
            with opened(uri) as lake, pytest.raises(CodeRefused, match=f"table {NAME} sets {key} to '{FOREIGN}'"):
                lake.table(NAME)
            with opened(uri, **{key: FOREIGN}) as lake:
                lake.table(NAME)

    def test_is_reached_as_our_settings_name(self) -> None:
        own, theirs = "pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"
        given = {"py-io-impl": theirs}
        with (
            served(given, defaults=given, overrides=given, config=given, credentials=given) as uri,
            opened(uri, **{"py-io-impl": own}) as lake,
        ):
            assert type(lake.table(NAME).io).__name__ == "PyArrowFileIO"

    @pytest.mark.parametrize("where", ["config", "credentials"])
    def test_loads_no_module_that_its_config_names(self, planted: str, where: str) -> None:
        named = dict.fromkeys(PYTHON, planted)
        with served(**{where: named}) as uri, opened(uri) as lake:
            assert type(lake.table(NAME).io).__name__ == "PyArrowFileIO"


class TestConfig:
    @pytest.mark.parametrize("where", ["defaults", "overrides"])
    def test_loads_no_module_that_it_names(self, planted: str, where: str) -> None:
        named = dict.fromkeys(PYTHON, planted)
        auth = {"type": "custom", "impl": planted, "custom": {}}
        given: dict[str, Any] = {**named, "auth": auth, "ssl": {"cabundle": "/"}}
        with served(**{where: given}) as uri, opened(uri) as lake:
            lake.table(NAME)

    @pytest.mark.parametrize("where", ["defaults", "overrides"])
    @pytest.mark.parametrize("key", sorted(JAVA))
    def test_is_refused_where_java_would_load_a_class(self, key: str, where: str) -> None:
        with served(**{where: {key: FOREIGN}}) as uri:
            with pytest.raises(CodeRefused, match=f"/v1/config sets {key} to '{FOREIGN}'"), opened(uri):
                pass
            with pytest.raises(NeedsOperator, match="; unset it, or set the same") as told:
                PipelineTables(Connection(uri), "plant")
            assert len(str(told.value)) <= LONGEST
            with opened(uri, **{key: FOREIGN}):
                pass

    def test_may_name_what_is_well_known(self) -> None:
        """As Polaris, Lakekeeper and Nessie do."""
        ordinary = {"io-impl": S3, "s3.endpoint": "http://here", "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
        with served(defaults=ordinary, config=ordinary, credentials=ordinary) as uri, opened(uri) as lake:
            assert lake.table(NAME).io.properties["io-impl"] == S3

    def test_yields_to_what_our_settings_name(self) -> None:
        """Of an override Java takes the catalog's, so that has to be a known one."""
        own = "org.apache.iceberg.hadoop.HadoopFileIO"
        with served(overrides={"io-impl": S3}) as uri, opened(uri, **{"io-impl": own}) as lake:
            assert lake.pyiceberg.properties["io-impl"] == own
        with (
            served(overrides={"io-impl": FOREIGN}) as uri,
            pytest.raises(CodeRefused),
            opened(uri, **{"io-impl": own}),
        ):
            pass
        with served(defaults={"io-impl": FOREIGN}) as uri, opened(uri, **{"io-impl": own}):
            pass


class TestPyiceberg:
    def test_loads_classes_by_name_only_in_the_known_modules(self) -> None:
        """Whoever takes a newer pyiceberg has to look at what is new here, and which properties lead there."""
        root = Path(pyiceberg.__file__).parent
        sources = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
        assert {name for name, text in sources.items() if "import_module(" in text} == {
            *("catalog/__init__.py", "catalog/rest/auth.py", "io/__init__.py", "io/pyarrow.py", "table/locations.py"),
            "transforms.py",  # by a name of its own
        }
