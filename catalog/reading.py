"""A few rows of a table, as plain values."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from catalog.connection import Lake


def rows_since(lake: Lake, name: str, column: str, moment: dt.datetime, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of main whose time in `column` is that moment or later; only files that may hold such are opened."""
    table = lake.table(name)
    with lake.calling(f"reading table {name}"):
        scan = table.scan(f"{column} >= '{moment.isoformat()}'", selected_fields=tuple(columns))
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found
