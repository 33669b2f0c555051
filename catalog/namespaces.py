"""Namespaces: created if they are missing, level by level."""

from collections.abc import Mapping

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError

from catalog.connection import CatalogClient
from catalog.errors import (
    Conflict,
    Denied,
    FilesDenied,
    NamespaceMissing,
    NamespaceRefused,
    NotLetIn,
    RequestRefused,
    Unreachable,
)
from catalog.retries import retrying

_LOCATION = "location"


def ensure_namespace(
    client: CatalogClient,
    namespace: str,
    properties: Mapping[str, str] | None = None,
    *,
    location: str | None = None,
    create: bool = True,
) -> None:
    """Create the namespace and those above it if they are missing; several writers may do so at once.

    Properties and location are for a new namespace; an existing one stays as it is. Without `create`, a missing one
    raises NamespaceMissing.
    """
    parts = tuple(namespace.split("."))
    if not all(parts):
        raise RequestRefused(f"{namespace!r} is no namespace's name: a level of it is empty")
    if not create:
        if not has_namespace(client, namespace):
            raise NamespaceMissing(f"there is no namespace {namespace}, and it may not be made: make it, or allow it")
        return
    wanted = {**(properties or {}), **({_LOCATION: location} if location else {})}
    for depth in range(1, len(parts) + 1):
        # If two writers insert at once, some catalogs answer one of them with an internal error.
        ensured = retrying((Conflict, Unreachable))
        ensured(_ensure, client, parts[:depth], wanted if depth == len(parts) else {})


def has_namespace(client: CatalogClient, namespace: str) -> bool:
    """Whether the namespace exists."""
    return _properties(client, namespace) is not None


def namespace_properties(client: CatalogClient, namespace: str) -> dict[str, str]:
    """Give its properties, with `location` if the catalog reports it; raises NamespaceMissing if there is none."""
    found = _properties(client, namespace)
    if found is None:
        raise NamespaceMissing(f"there is no namespace {namespace}")
    return found


def _properties(client: CatalogClient, namespace: str) -> dict[str, str] | None:
    with client.calling(f"loading namespace {namespace}"):
        try:
            return dict(client.pyiceberg.load_namespace_properties(tuple(namespace.split("."))))
        except NoSuchNamespaceError:
            return None


def _ensure(client: CatalogClient, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
    name = ".".join(parts)
    # Look first: not everyone who may use a namespace may create one.
    if has_namespace(client, name):
        return
    try:
        with client.calling(f"making namespace {name}"):
            try:
                client.pyiceberg.create_namespace(parts, dict(properties))
            except NamespaceAlreadyExistsError as there:
                # The next look tells whether that is true.
                raise Conflict(f"making namespace {name}: {there}") from None
    except (NotLetIn, FilesDenied):
        raise
    except (Denied, RequestRefused) as refusal:
        raise NamespaceRefused(f"{refusal}; make it in the catalog, or allow it") from None
