"""Tables on S3: a real store, both clients and a second engine; and the messages if the store denies access."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables import Column, PipelineTables, TableSpec
from lakehouse_ingest.tables.clients import connection_of, embedded
from tests.services.doors import client, in_settings, known
from tests.services.feeding import fill
from tests.services.gateway import Gateway
from tests.services.kafka import create_topic
from tests.services.minio import REGION, MinIO
from tests.services.pipelines import Pipelines, arguments, settings_text
from tests.services.readers import Coordinates, duckdb_at

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]

BUCKET = "lake"
PLACE = f"s3://{BUCKET}/house"
EVENTS = 2_000
REFUSED = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinIO]:
    with MinIO(tmp_path_factory.mktemp("minio")) as started:
        started.make_bucket(BUCKET)
        yield started


@pytest.fixture(autouse=True)
def _no_keys_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def s3_of(store: MinIO, **changes: Any) -> S3Settings:
    keys = {"access_key": store.access_key, "secret_key": store.secret_key}
    return S3Settings.model_validate(
        {"endpoint": store.endpoint, "region": REGION, "path_style": True, **keys, **changes}
    )


def files_of(store: MinIO) -> dict[str, str]:
    """Iceberg's properties."""
    return S3(CatalogSettings(), s3_of(store)).properties()


@contextmanager
def served(folder: Path, store: MinIO, jars: Path | None) -> Iterator[str]:
    with embedded(CatalogSettings(path=folder, warehouse=PLACE), s3_of(store), jars, 0) as server:
        yield known(server)


def lake_of(uri: str, store: MinIO) -> Catalog:
    return load_catalog("lake", **client(uri), **files_of(store))


def settings_on_s3(name: str, broker: str, *, catalog: str, s3: str, uri: str | None = None, **changes: Any) -> str:
    text = settings_text(name, broker, uri, name, **changes)
    return text.replace("[catalog]\n", f"[catalog]\n{catalog}\n") + f"[s3]\n{s3}\n"


def keys_text(s3: S3Settings, *, keys: bool = True) -> str:
    assert s3.access_key
    assert s3.secret_key
    text = f'endpoint = "{s3.endpoint}"\nregion = "{s3.region}"\npath_style = true'
    shown = f'access_key = "{s3.access_key.get_secret_value()}"\nsecret_key = "{s3.secret_key.get_secret_value()}"'
    return f"{text}\n{shown}" if keys else text


def expected(topic: str, partitions: int = 2) -> Coordinates:
    return Counter({(topic, number % partitions, number // partitions): 1 for number in range(EVENTS)})


def by_pyiceberg(lake: Catalog, *tables: str) -> Coordinates:
    sources = (row for name in tables for row in lake.load_table(name).scan().to_arrow()["_source"].to_pylist())
    return Counter((row["topic"], row["partition"], row["offset"]) for row in sources)


def by_duckdb(uri: str, store: MinIO, *tables: str) -> Coordinates:
    found: Coordinates = Counter()
    with duckdb_at(uri) as connection:
        connection.sql(
            f"CREATE SECRET (TYPE s3, KEY_ID '{store.access_key}', SECRET '{store.secret_key}', REGION '{REGION}',"
            f" ENDPOINT '{store.endpoint.partition('//')[2]}', URL_STYLE 'path', USE_SSL false)"
        )
        for name in tables:
            read = connection.sql(f'SELECT _source.topic, _source.partition, _source."offset" FROM lake.{name}')
            found.update((str(topic), int(part), int(offset)) for topic, part, offset in read.fetchall())
    return found


def manifest_lists(table: Table, store: MinIO) -> tuple[set[str], set[str]]:
    """Those of its snapshots, and those that are there."""
    known = {snapshot.manifest_list.removeprefix(f"s3://{BUCKET}/") for snapshot in table.metadata.snapshots}
    folder = table.location().removeprefix(f"s3://{BUCKET}/")
    return known, {key for key in store.keys(BUCKET, f"{folder}/metadata/") if "/snap-" in key}


class TestPipelineOnS3:
    def test_with_the_embedded_catalog_writes_what_two_readers_find(
        self, store: MinIO, broker: str, topic: str, folder: Path, jars_folder: Path | None
    ) -> None:
        """Old snapshots are expired with their files: each manifest list in the store belongs to a snapshot."""
        create_topic(broker, topic, 2)
        fill(broker, topic, EVENTS, 2)
        home = folder / "lakehouse"
        settings = settings_on_s3(
            topic,
            broker,
            catalog=f'path = "{home}"\nwarehouse = "{PLACE}"',
            s3=keys_text(s3_of(store)),
            max_records=EVENTS // 8,
            keep_snapshots=4,
        )
        with Pipelines(folder, jars_folder) as pipelines:
            running = pipelines.start(settings, "--until-latest")
            running.wait_for("batch_landed")
            commands = [arguments(pid).decode() for pid in [running.pid, running.jvm(), *running.family()]]
            assert all(commands[:2])
            assert running.wait(120) == 0, running.tail()
            said = running.log.read_text()
        assert not [each for each in commands if store.secret_key in each], "anyone on the machine can see them"
        assert store.secret_key not in said
        assert running.events("snapshots_expired")
        assert not running.events("snapshots_not_expired")
        assert [each.name for each in home.iterdir()] == [".lakehouse"], "the folder holds the catalog alone"
        tables = (f"{topic}.events", f"{topic}.dead_letters")
        with served(home, store, jars_folder) as uri:
            lake = lake_of(uri, store)
            assert lake.load_table(tables[0]).location().startswith(PLACE)
            assert by_pyiceberg(lake, *tables) == by_duckdb(uri, store, *tables) == expected(topic)
            known, there = manifest_lists(lake.load_table(tables[0]), store)
        assert there == known

    def test_works_with_credentials_that_the_catalog_gives(
        self, store: MinIO, broker: str, topic: str, folder: Path, jars_folder: Path | None
    ) -> None:
        """Our client reads and writes, in the process and in its tasks. Spark's deletes files of old snapshots."""
        create_topic(broker, topic, 2)
        fill(broker, topic, EVENTS, 2)
        with (
            served(folder / "lakehouse", store, jars_folder) as uri,
            Gateway(uri) as gateway,
            Pipelines(folder, jars_folder) as pipelines,
        ):
            gateway.vended = files_of(store)
            settings = settings_on_s3(
                topic,
                broker,
                uri=gateway.uri,
                catalog=f'token = "{gateway.token()}"\nvended_credentials = true',
                s3=keys_text(s3_of(store), keys=False),
                max_records=EVENTS // 8,
                keep_snapshots=4,
            )
            drained = pipelines.drain(settings)
            assert drained.events("snapshots_expired")
            assert not drained.events("snapshots_not_expired")
            assert gateway.seen["vended to spark"]
            assert gateway.seen["vended to pyiceberg"]
            tables = (f"{topic}.events", f"{topic}.dead_letters")
            assert by_pyiceberg(lake_of(uri, store), *tables) == expected(topic)


class TestDeniedAccess:
    @pytest.mark.parametrize(
        ("changes", "place", "kind", "named"),
        [
            ({"access_key": "planted-key"}, PLACE, SettingsRefused, "`s3.access_key`"),
            ({"secret_key": "planted-secret"}, PLACE, SettingsRefused, "`s3.secret_key`"),
            ({"region": "us-west-2"}, PLACE, SettingsRefused, "`s3.region`"),
            ({}, "s3://nobodys/house", SettingsRefused, "`catalog.warehouse`"),
            ({"endpoint": "http://127.0.0.1:9"}, PLACE, TryAgain, "`s3.endpoint`"),
            ({"endpoint": "http://nowhere.invalid"}, PLACE, TryAgain, "`s3.endpoint`"),
            ({"access_key": None, "secret_key": None}, PLACE, SettingsRefused, "`s3.access_key`"),
            ({}, "gs://bucket/house", SettingsRefused, "`catalog.warehouse`"),
        ],
    )
    def test_of_the_embedded_catalog_names_the_setting(
        self,
        changes: dict[str, Any],
        place: str,
        kind: type[LakehouseError],
        named: str,
        store: MinIO,
        folder: Path,
        jars_folder: Path | None,
    ) -> None:
        catalog = CatalogSettings(path=folder, warehouse=place)
        with pytest.raises(kind) as refusal, embedded(catalog, s3_of(store, **changes), jars_folder, 0):
            pass
        said = str(refusal.value)
        assert named in said
        assert len(said) <= 200
        assert "planted" not in said

    def test_of_a_run_ends_it_with_one_sentence(
        self, store: MinIO, broker: str, folder: Path, jars_folder: Path | None
    ) -> None:
        with Pipelines(folder, jars_folder) as pipelines:
            running = pipelines.start(
                settings_on_s3(
                    "refused",
                    broker,
                    catalog=f'path = "{folder / "lakehouse"}"\nwarehouse = "{PLACE}"',
                    s3=keys_text(s3_of(store, secret_key="planted-secret")),
                )
            )
            assert running.wait(60) == REFUSED, running.tail()
        (said,) = running.last_words()
        assert "`s3.secret_key`" in said
        assert "planted" not in running.log.read_text()

    @pytest.mark.parametrize(
        ("changes", "kind", "named"),
        [
            ({"secret_key": "planted-secret"}, SettingsRefused, "`s3.secret_key`"),
            ({"access_key": "planted-key"}, SettingsRefused, "`s3.access_key`"),
            ({"endpoint": "http://127.0.0.1:9"}, TryAgain, "`s3.endpoint`"),
        ],
    )
    def test_of_a_start_with_another_catalog_names_the_setting(
        self,
        changes: dict[str, Any],
        kind: type[LakehouseError],
        named: str,
        store: MinIO,
        folder: Path,
        jars_folder: Path | None,
    ) -> None:
        """The catalog writes with keys of its own. Ours are first used for the branch that a start opens."""
        with served(folder, store, jars_folder) as uri:
            lake = PipelineTables(
                connection_of(CatalogSettings(**in_settings(uri)), s3_of(store, **changes), uri), "denied"
            )
            lake.ensure_namespace("denied")
            lake.create(TableSpec("denied.t", (Column("n", "long"),)))
            with pytest.raises(kind) as refusal:
                lake.claim("denied.t", [])
        said = str(refusal.value)
        assert named in said
        assert len(said) <= 200
        assert "planted" not in said
