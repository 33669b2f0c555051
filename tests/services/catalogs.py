"""The catalogs that the conformance suite goes over; each says what it can't do.

The embedded one, the same behind a gate with a lock on it, pyiceberg's own over SQLite, and any other that is given by
the environment; its part of the suite is marked `given`:

LAKEHOUSE_TEST_CATALOG_URI          of an Iceberg REST catalog; tables and namespaces are made in it, and dropped again
LAKEHOUSE_TEST_CATALOG_WAREHOUSE, _TOKEN, _CREDENTIAL
LAKEHOUSE_TEST_CATALOG_PROPERTIES   a JSON object: of the client, such as `scope` or `s3.endpoint`
LAKEHOUSE_TEST_CATALOG_CANNOT       of `Can`, separated by commas
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import pytest

from catalog import CatalogClient, Connection, connect
from tests.services.doors import connection_to
from tests.services.gateway import TOKENS, Gateway
from tests.services.sqlite_catalog import sqlite_catalog

NAMESPACE = "lakehouse_conformance"
VARIABLE = "LAKEHOUSE_TEST_CATALOG_"


class Can(StrEnum):
    NESTED = "nested"  # namespaces within namespaces
    PLACES = "places"  # tables where we say
    NAMESPACE_PLACES = "namespace places"  # a namespace's tables in its location, unless we say otherwise
    BRANCH_FIRST = "branch first"  # a branch on a table that has no snapshot yet
    CUTS = "cut histories"  # a snapshot whose parent was expired still names it
    VIEWS = "views"
    LOCAL_FILES = "local files"  # keeps metadata where a test can take it away
    OLD_FORMATS = "format 1"
    NEW_FORMATS = "format 3"


class Kind:
    """A catalog; whether it can't do what it says, and nothing else, `tests/conformance/test_abilities.py` tries."""

    name: ClassVar[str]
    cannot: frozenset[Can] = frozenset()

    def opened(self) -> AbstractContextManager[CatalogClient]:
        """A client of its own each time."""
        raise NotImplementedError

    def needs(self, *abilities: Can) -> None:
        if missing := self.cannot & set(abilities):
            pytest.skip(f"{self.name} can't: {', '.join(sorted(missing))}")


class Embedded(Kind):
    name = "embedded"
    cannot = frozenset({Can.NAMESPACE_PLACES})  # Iceberg's JdbcCatalog puts every table below the warehouse

    def __init__(self, uri: str) -> None:
        self.connection = connection_to(uri)

    def opened(self) -> AbstractContextManager[CatalogClient]:
        return closing(connect(self.connection))


class Gated(Embedded):
    name = "gated"

    def __init__(self, gateway: Gateway) -> None:
        self.connection = Connection(gateway.uri, properties={"credential": gateway.credential, **asked_at(gateway)})


class OfPyiceberg(Kind):
    name = "sql"
    cannot = frozenset({Can.VIEWS, Can.BRANCH_FIRST, Can.CUTS, Can.NEW_FORMATS})

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def opened(self) -> AbstractContextManager[CatalogClient]:
        return closing(CatalogClient(sqlite_catalog(self.folder)))


class Given(Kind):
    name = "given"

    def __init__(self, environment: Mapping[str, str]) -> None:
        told = {key.removeprefix(VARIABLE): text for key, text in environment.items() if key.startswith(VARIABLE)}
        properties = json.loads(told.get("PROPERTIES", "{}"))
        if "CREDENTIAL" in told:
            properties["credential"] = told["CREDENTIAL"]
        self.connection = Connection(told["URI"], told.get("WAREHOUSE"), told.get("TOKEN"), properties)
        self.cannot = frozenset(map(Can, filter(None, map(str.strip, told.get("CANNOT", "").split(",")))))

    def opened(self) -> AbstractContextManager[CatalogClient]:
        return closing(connect(self.connection))


def asked_at(gateway: Gateway) -> dict[str, str]:
    """Where a gate gives its tokens, and for what."""
    return {"scope": gateway.scope, "oauth2-server-uri": f"{gateway.uri}{TOKENS}"}


OURS: tuple[type[Kind], ...] = (Embedded, Gated, OfPyiceberg)
RUN = [each.name for each in OURS]
# Who refuses a request is the catalog behind the gate. The gate is tried where requests of every sort go through it.
WITHOUT_GATE = [each.name for each in OURS if each is not Gated]
GIVEN = [pytest.param(Given.name, marks=pytest.mark.given)] if f"{VARIABLE}URI" in os.environ else []
