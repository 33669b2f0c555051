"""Plug-ins by name. Ours stand in a table of dotted paths, those of other packages in entry points.

Only the chosen plug-in is imported. A package that is broken or lacks an extra does no harm unless it is chosen.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lakehouse_ingest.errors import LONGEST, LakehouseError, SettingsRefused, fitted


def offered(name: str, own: Mapping[str, str], group: str) -> EntryPoint | None:
    """The entry point of that name. Ours come first, so no other package can take their names."""
    if name in own:
        return EntryPoint(name, own[name], group)
    return next(iter(entry_points(group=group, name=name)), None)


def load(setting: str, name: str, own: Mapping[str, str], group: str, protocol: type) -> Any:
    """Import the plug-in that the setting names, and check that it has every member of the protocol."""
    point = offered(name, own, group)
    if point is None:
        raise SettingsRefused(_absent(setting, name, own, group))
    try:
        found = point.load()
    except LakehouseError:
        raise
    except Exception as failure:
        said = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise SettingsRefused(f"`{setting}` names {name}, which can't be loaded: {said}"[:LONGEST]) from failure
    if not isinstance(found, protocol):
        raise SettingsRefused(
            f"`{setting}` names {name} ({point.value[:60]}), which lacks something of a {protocol.__name__};"
            " fix that package: the suites in lakehouse_ingest.testing find what is missing"
        )
    return found


def _absent(setting: str, name: str, own: Mapping[str, str], group: str) -> str:
    there = sorted({*own, *(each.name for each in entry_points(group=group))})
    near = get_close_matches(name, there, 1)
    hint = f"did you mean {near[0]}?" if near else f"a package may offer more by an entry point of {group}"
    return fitted(f"`{setting}` names {name[:40]!r}, which is not installed: there is {', '.join(there)}; {hint}")
