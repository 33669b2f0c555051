"""How tests get into the embedded catalogs that they have started: each has a token, and its address tells which.

A catalog of somebody else's, or a front before one of ours, asks for none here.
"""

from typing import Any

from catalog import Connection
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog

_SERVED: dict[str, EmbeddedCatalog] = {}


def known(catalog: EmbeddedCatalog) -> str:
    """The address of one that serves; whoever has it gets in by what is below."""
    assert catalog.uri
    _SERVED[catalog.uri] = catalog
    return catalog.uri


def token_at(uri: str) -> str:
    """As the catalog's note says it. Our own clients also ask the system who listens there, which takes milliseconds.

    A front asks for each request, and leaves connections behind that make the system's answer longer and longer.
    """
    note = _SERVED[uri].claim.read() if uri in _SERVED else None
    return note.token if note and note.uri == uri else ""


def connection_to(uri: str) -> Connection:
    return Connection(uri, token=token_at(uri) or None)


def client(uri: str) -> dict[str, Any]:
    """The properties of pyiceberg's own client."""
    token = token_at(uri)
    return {"type": "rest", "uri": uri, **({"token": token} if token else {})}


def in_settings(uri: str) -> dict[str, Any]:
    """The way in as the keys of `catalog`: its folder is enough to find the token."""
    return {"uri": uri, **({"path": str(_SERVED[uri].warehouse)} if uri in _SERVED else {})}


def as_flags(uri: str) -> list[str]:
    """The same for the command line."""
    return ["--catalog-uri", uri, *(("--warehouse", str(_SERVED[uri].warehouse)) if uri in _SERVED else ())]
