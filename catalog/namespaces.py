"""Namespaces: made when needed, level by level."""

from collections.abc import Mapping

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError

from catalog.connection import Lake
from catalog.errors import (
    Conflict,
    Denied,
    FilesDenied,
    NamespaceMissing,
    NamespaceRefused,
    NotLetIn,
    Refused,
    Unreachable,
)
from catalog.retries import retrying

_LOCATION = "location"


def ensure_namespace(
    client: Lake,
    namespace: str,
    properties: Mapping[str, str] | None = None,
    *,
    location: str | None = None,
    create: bool = True,
) -> None:
    """Make the namespace and those above it where they are missing; many may do so at once.

    Properties and location are those of a new one: of one that is there nothing is changed. Without `create` a missing
    one is NamespaceMissing.
    """
    parts = tuple(namespace.split("."))
    if not all(parts):
        raise Refused(f"{namespace!r} is no namespace's name")
    if not create:
        if not has_namespace(client, namespace):
            raise NamespaceMissing(f"there is no namespace {namespace}, and it may not be made: make it, or allow it")
        return
    wanted = {**(properties or {}), **({_LOCATION: location} if location else {})}
    for depth in range(1, len(parts) + 1):
        # If two writers insert at once, some catalogs answer one of them with an internal error.
        ensured = retrying((Conflict, Unreachable))
        ensured(_ensure, client, parts[:depth], wanted if depth == len(parts) else {})


def has_namespace(client: Lake, namespace: str) -> bool:
    """Whether it is there."""
    return _properties(client, namespace) is not None


def namespace_properties(client: Lake, namespace: str) -> dict[str, str]:
    """Give its properties, `location` among them where the catalog says it; NamespaceMissing where there is none."""
    found = _properties(client, namespace)
    if found is None:
        raise NamespaceMissing(f"there is no namespace {namespace}")
    return found


def _properties(client: Lake, namespace: str) -> dict[str, str] | None:
    with client.calling(f"loading namespace {namespace}"):
        try:
            return dict(client.pyiceberg.load_namespace_properties(tuple(namespace.split("."))))
        except NoSuchNamespaceError:
            return None


def _ensure(client: Lake, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
    name = ".".join(parts)
    # Looked for first: not everybody who may use a namespace may make one.
    if has_namespace(client, name):
        return
    try:
        with client.calling(f"making namespace {name}"):
            try:
                client.pyiceberg.create_namespace(parts, dict(properties))
            except NamespaceAlreadyExistsError as there:
                # Or so it was said: the next look tells.
                raise Conflict(f"making namespace {name}: {there}") from None
    except (NotLetIn, FilesDenied):
        raise
    except (Denied, Refused) as refusal:
        raise NamespaceRefused(f"{refusal}; make it in the catalog, or allow it") from None
