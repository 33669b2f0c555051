"""What a pipeline stands on: a broker, a catalog, a place for the tables' files; with every lock, or with none.

Whoever feeds it and reads back what it did comes by a way of his own, past the locks.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.storage.s3 import S3
from lakehouse_ingest.settings import CatalogSettings
from tests.services.doors import known
from tests.services.gateway import Gateway
from tests.services.minio import MinIO
from tests.services.pipelines import settings_text
from tests.services.readers import Reader, data_files
from tests.services.secured_kafka import PASSWORD, USER, Secured, secured_kafka

BUCKET = "lake"
LOOK = 0.05  # a listing takes milliseconds of everybody's time
PREFIX = "LAKEHOUSE_INGEST_"


@dataclass(frozen=True)
class Surroundings:
    brokers: str  # as they ask for nothing
    catalog: str
    data_files: Callable[[str], set[Path]]  # of `namespace/table`, whether a snapshot knows them or not
    look: float = 0.002  # seconds between two looks at them
    files: Mapping[str, str] = field(default_factory=dict)  # Iceberg's properties of their store
    locked_brokers: str = ""  # a pipeline's way in, where it is another
    locked_catalog: str = ""
    locks: str = ""  # what a pipeline's settings say besides
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings(self, name: str, namespace: str, **changes: Any) -> str:
        brokers, catalog = self.locked_brokers or self.brokers, self.locked_catalog or self.catalog
        return settings_text(name, brokers, catalog, namespace, **changes) + self.locks

    def reader(self, namespace: str) -> Reader:
        return Reader(self.catalog, namespace, self.files)


@dataclass(frozen=True)
class Locked:
    """Surroundings, and who keeps each of the doors."""

    surroundings: Surroundings
    kafka: Secured
    gateway: Gateway
    store: MinIO


def unlocked(broker: str, catalog: str, warehouse: Path) -> Surroundings:
    return Surroundings(broker, catalog, lambda table: data_files(warehouse / table))


@contextmanager
def locked(folder: Path, jars: Path | None) -> Iterator[Locked]:
    """SCRAM over TLS, OAuth2 before the catalog, keys to the store; of the secrets none is in the settings file."""
    with secured_kafka(folder, jars) as kafka, MinIO(folder) as store:
        place = f"s3://{store.make_bucket(BUCKET)}/house"
        s3 = S3(CatalogSettings(), store.settings)
        catalog = EmbeddedCatalog(folder / "catalog", port=0, jars=jars, place=place, store=s3)
        with catalog, Gateway(known(catalog)) as gateway:
            surroundings = Surroundings(
                kafka.plain,
                gateway.upstream,
                lambda table: _objects(store, f"house/{table}/data/"),
                look=LOOK,
                files=s3.properties(),
                locked_brokers=kafka.broker.sasl,
                locked_catalog=gateway.uri,
                locks=_locks(kafka.authority.path("ca.crt"), store, _kept(folder / "s3-secret", store.secret_key)),
                environment={
                    f"{PREFIX}SOURCE__SECURITY__PASSWORD": PASSWORD,
                    f"{PREFIX}CATALOG__CREDENTIAL__FILE": _kept(folder / "catalog-secret", gateway.credential),
                    f"{PREFIX}S3__ACCESS_KEY": store.access_key,
                },
            )
            yield Locked(surroundings, kafka, gateway, store)


def _locks(ca: str, store: MinIO, secret_key: str) -> str:
    return f"""\
[source.security]
mechanism = "SCRAM-SHA-512"
username = "{USER}"
ca = "{ca}"
[s3]
endpoint = "{store.endpoint}"
region = "{store.settings.region}"
path_style = true
secret_key = {{ file = "{secret_key}" }}
"""


def _kept(file: Path, secret: str) -> str:
    """As a secret is mounted: with the end of its line."""
    file.write_text(f"{secret}\n")
    return str(file)


def _objects(store: MinIO, prefix: str) -> set[Path]:
    """As `local` has them."""
    return {Path("/", key) for key in store.keys(BUCKET, prefix) if key.endswith(".parquet")}
