"""The attributes of spans, in OpenTelemetry's words for messaging and databases, and in ours for the rest.

Names and values as of the semantic conventions 1.43: `messaging.*` is still in development there, `db.*` is stable.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

Kind = Literal["internal", "client", "consumer"]
Attributes = Mapping[str, object]


# Work on a source, by the span's name: its kind, the convention's type of operation, and Kafka's name for it.
MESSAGING: Mapping[str, tuple[Kind, str, str]] = {
    "batch": ("consumer", "process", "process"),
    "source.read": ("client", "receive", "subscribe"),
    "acknowledge": ("client", "settle", "commit"),
}
# Work on a table, by the span's name.
DATABASE: Mapping[str, str] = {"commit": "commit", "expire": "expire_snapshots"}


def kind_of(span: str) -> Kind:
    if span in DATABASE:
        return "client"
    return MESSAGING[span][0] if span in MESSAGING else "internal"


def of_source(span: str, source: Attributes) -> Attributes:
    """`source`: the attributes from `reading`."""
    if span not in MESSAGING:
        return source if span.startswith("source.") else {}
    _, operation, name = MESSAGING[span]
    return {**source, "messaging.operation.type": operation, "messaging.operation.name": name}


def of_table(span: str, table: str) -> Attributes:
    namespace, _, name = table.rpartition(".")
    operation = {"db.operation.name": DATABASE[span]} if span in DATABASE else {}
    return {"db.system.name": "iceberg", "db.namespace": namespace, "db.collection.name": name, **operation}


def reading(system: str, topics: Sequence[str], group: str) -> Attributes:
    """With one topic, that is the destination; with several there is no name for it."""
    one = {"messaging.destination.name": topics[0]} if len(topics) == 1 else {}
    return {"messaging.system": system, "messaging.consumer.group.name": group, **one}
