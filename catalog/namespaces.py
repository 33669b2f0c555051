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
from catalog.retries import patiently

_LOCATION = "location"


def ensure_namespace(
    lake: Lake,
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
        if not has_namespace(lake, namespace):
            raise NamespaceMissing(f"there is no namespace {namespace}, and it may not be made: make it, or allow it")
        return
    told = {**(properties or {}), **({_LOCATION: location} if location else {})}
    for depth in range(1, len(parts) + 1):
        for last in patiently():
            try:
                _ensure(lake, parts[:depth], told if depth == len(parts) else {})
                break
            except (Conflict, Unreachable):
                # Of two that insert at once, some catalogs answer one with an internal error.
                if last:
                    raise


def has_namespace(lake: Lake, namespace: str) -> bool:
    """Whether it is there."""
    return _properties(lake, namespace) is not None


def namespace_properties(lake: Lake, namespace: str) -> dict[str, str]:
    """Give its properties, `location` among them where the catalog says it; NamespaceMissing where there is none."""
    found = _properties(lake, namespace)
    if found is None:
        raise NamespaceMissing(f"there is no namespace {namespace}")
    return found


def _properties(lake: Lake, namespace: str) -> dict[str, str] | None:
    with lake.calling(f"loading namespace {namespace}"):
        try:
            return dict(lake.pyiceberg.load_namespace_properties(tuple(namespace.split("."))))
        except NoSuchNamespaceError:
            return None


def _ensure(lake: Lake, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
    name = ".".join(parts)
    # Looked for first: not everybody who may use a namespace may make one.
    if has_namespace(lake, name):
        return
    try:
        with lake.calling(f"making namespace {name}"):
            try:
                lake.pyiceberg.create_namespace(parts, dict(properties))
            except NamespaceAlreadyExistsError as there:
                # Or so it was said: the next look tells.
                raise Conflict(f"making namespace {name}: {there}") from None
    except (NotLetIn, FilesDenied):
        raise
    except (Denied, Refused) as refusal:
        raise NamespaceRefused(f"{refusal}; make it in the catalog, or allow it") from None
