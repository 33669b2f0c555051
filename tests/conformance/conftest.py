"""The catalogs, one after the other."""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pyiceberg.exceptions import NamespaceNotEmptyError

from catalog import CatalogClient, CatalogError, Partition, TableSpec, create_table, ensure_namespace, open_branch
from tests.conformance.commits import COLUMNS, begin, land
from tests.services import catalogs
from tests.services.catalogs import NAMESPACE, Can, Embedded, Gated, Given, Kind, OfPyiceberg
from tests.services.gateway import Gateway
from tests.services.landings import LandingBench, without_waiting


@pytest.fixture(scope="package", params=[*catalogs.RUN, *catalogs.GIVEN])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    match request.param:
        case Embedded.name:
            yield Embedded(request.getfixturevalue("rest_uri"))
        case Gated.name:
            with Gateway(request.getfixturevalue("rest_uri")) as gateway:
                yield Gated(gateway)
        case OfPyiceberg.name:
            yield OfPyiceberg(tmp_path_factory.mktemp("sql"))
        case _:
            yield Given(os.environ)


@pytest.fixture(scope="package")
def lake(kind: Kind) -> Iterator[CatalogClient]:
    with kind.opened() as lake:
        ensure_namespace(lake, NAMESPACE)
        yield lake
        if isinstance(kind, Given):
            clear(lake, (NAMESPACE,))


@pytest.fixture
def unmade() -> str:
    """The name of a table that there is not."""
    return f"{NAMESPACE}.t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def name(lake: CatalogClient, unmade: str) -> str:
    create_table(lake, TableSpec(unmade, COLUMNS, ()))
    return unmade


@pytest.fixture
def partitioned(lake: CatalogClient, unmade: str) -> str:
    create_table(lake, TableSpec(unmade, COLUMNS, (Partition.parse("site"),)))
    return unmade


@pytest.fixture
def others(kind: Kind) -> Iterator[CatalogClient]:
    """Somebody else's client."""
    with kind.opened() as lake:
        yield lake


@pytest.fixture
def filled(kind: Kind, lake: CatalogClient, partitioned: str) -> str:
    """A table with one published row and the branch `ours` at main's head."""
    begin(kind, lake, partitioned)
    open_branch(lake, partitioned, "ours")
    land(lake, partitioned, 1)
    return partitioned


@pytest.fixture
def bench(kind: Kind, lake: CatalogClient, unmade: str, monkeypatch: pytest.MonkeyPatch) -> LandingBench:
    without_waiting(monkeypatch)
    odd = [version for version, can in ((1, Can.OLD_FORMATS), (3, Can.NEW_FORMATS)) if can not in kind.cannot]
    return LandingBench(lake, unmade, formats=(2, *odd))


def clear(lake: CatalogClient, namespace: tuple[str, ...]) -> None:
    """Somebody else's catalog is left as it was."""
    for inner in lake.pyiceberg.list_namespaces(namespace):
        clear(lake, inner)
    for table in lake.pyiceberg.list_tables(namespace):
        with suppress(CatalogError), lake.calling("dropping"):
            lake.pyiceberg.purge_table(table)
    for view in lake.pyiceberg.list_views(namespace):
        with suppress(CatalogError), lake.calling("dropping"):
            lake.pyiceberg.drop_view(view)
    with suppress(CatalogError, NamespaceNotEmptyError), lake.calling("dropping"):
        lake.pyiceberg.drop_namespace(namespace)
