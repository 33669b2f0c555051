"""The catalogs that the conformance suite goes over, and what each of them can't do.

The embedded one, the same behind a gate with a lock on it, pyiceberg's own over SQLite, and any other that is given by
the environment:

LAKEHOUSE_TEST_CATALOG_URI          of an Iceberg REST catalog; tables and namespaces are made in it, and dropped again
LAKEHOUSE_TEST_CATALOG_WAREHOUSE, _TOKEN, _CREDENTIAL
LAKEHOUSE_TEST_CATALOG_PROPERTIES   a JSON object: of the client, such as `scope` or `s3.endpoint`
LAKEHOUSE_TEST_CATALOG_CANNOT       of `Can`, separated by commas
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from catalog import Connection, Lake, connect
from tests.services.gateway import TOKENS, Gateway

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


@dataclass(frozen=True)
class Kind:
    name: str
    opened: Callable[[], AbstractContextManager[Lake]]  # a client of its own each time
    cannot: frozenset[Can] = frozenset()

    def needs(self, *abilities: Can) -> None:
        if missing := self.cannot & set(abilities):
            pytest.skip(f"{self.name} can't: {', '.join(sorted(missing))}")


# Iceberg's JdbcCatalog puts every table below the warehouse.
JDBC = frozenset({Can.NAMESPACE_PLACES})
CANNOT = {
    "embedded": JDBC,
    "gated": JDBC,
    "sql": frozenset({Can.VIEWS, Can.BRANCH_FIRST, Can.CUTS, Can.NEW_FORMATS}),
}


@contextmanager
def embedded(uri: str) -> Iterator[Kind]:
    yield Kind("embedded", lambda: closing(connect(Connection(uri))), CANNOT["embedded"])


@contextmanager
def gated(uri: str) -> Iterator[Kind]:
    with Gateway(uri) as gateway:
        properties = {
            "credential": gateway.credential,
            "scope": gateway.scope,
            "oauth2-server-uri": f"{gateway.uri}{TOKENS}",
        }
        yield Kind("gated", lambda: closing(connect(Connection(gateway.uri, properties=properties))), CANNOT["gated"])


@contextmanager
def of_pyiceberg(folder: Path) -> Iterator[Kind]:
    uri = f"sqlite:///{folder / 'catalog.db'}"
    yield Kind(
        "sql",
        lambda: closing(Lake(SqlCatalog("lake", uri=uri, warehouse=f"file://{folder}"))),
        CANNOT["sql"],
    )


@contextmanager
def given() -> Iterator[Kind]:
    told = {name: os.environ.get(f"{VARIABLE}{name}") for name in ("URI", "WAREHOUSE", "TOKEN", "CREDENTIAL")}
    properties = json.loads(os.environ.get(f"{VARIABLE}PROPERTIES", "{}"))
    if told["CREDENTIAL"]:
        properties["credential"] = told["CREDENTIAL"]
    cannot = filter(None, map(str.strip, os.environ.get(f"{VARIABLE}CANNOT", "").split(",")))
    connection = Connection(str(told["URI"]), told["WAREHOUSE"], told["TOKEN"], properties)
    yield Kind("given", lambda: closing(connect(connection)), frozenset(map(Can, cannot)))


RUN = [*CANNOT, *(["given"] if os.environ.get(f"{VARIABLE}URI") else [])]
