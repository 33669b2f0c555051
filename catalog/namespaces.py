"""Namespaces: made when needed, level by level."""

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError

from catalog.attempts import patiently
from catalog.connection import Lake
from catalog.errors import Conflict, Refused, Unreachable


def ensure_namespace(lake: Lake, namespace: str) -> None:
    """Make the namespace and those above it where they are missing; many may do so at once."""
    parts = tuple(namespace.split("."))
    if not all(parts):
        raise Refused(f"{namespace!r} is no namespace's name")
    for depth in range(1, len(parts) + 1):
        for last in patiently():
            try:
                _ensure(lake, parts[:depth])
                break
            except (Conflict, Unreachable):
                # Of two that insert at once, some catalogs answer one with an internal error.
                if last:
                    raise


def has_namespace(lake: Lake, namespace: str) -> bool:
    """Whether it is there."""
    with lake.calling(f"loading namespace {namespace}"):
        try:
            lake.pyiceberg.load_namespace_properties(tuple(namespace.split(".")))
        except NoSuchNamespaceError:
            return False
    return True


def _ensure(lake: Lake, parts: tuple[str, ...]) -> None:
    name = ".".join(parts)
    # Looked for first: not everybody who may use a namespace may make one.
    if has_namespace(lake, name):
        return
    with lake.calling(f"making namespace {name}"):
        try:
            lake.pyiceberg.create_namespace(parts)
        except NamespaceAlreadyExistsError as there:
            # Or so it was said: the next look tells.
            raise Conflict(f"making namespace {name}: {there}") from None
