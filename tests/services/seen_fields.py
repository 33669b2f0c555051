"""What was seen of records that are written as JSON or as plain values."""

import json
from collections.abc import Iterable
from typing import Any

from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.values import Real


def value_of(text: str) -> Any:
    """A value as a task decodes it: its numbers know their text."""
    return json.loads(text, parse_float=Real, parse_constant=Real)


def fields_in(records: Iterable[Any], first: Iterable[str] = ()) -> SeenFields:
    """Of these records; those that are no JSON objects say nothing, as in a task."""
    found = SeenFields(first)
    for record in records:
        try:
            tree = value_of(record if isinstance(record, str) else json.dumps(record))
        except ValueError:
            continue
        if isinstance(tree, dict):
            found.add(tree)
    return found
