"""What a person has decided, written down: a mark in the batch record, from which every start goes on.

Whoever wakes up in between is shut out: the mark is written under a new epoch, like any start's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lakehouse_ingest.errors import Superseded
from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.marks import Head, Mark
from lakehouse_ingest.records import Offsets, SourceIdentity, Token, TopicPartition
from lakehouse_ingest.tables import PipelineTables, Registered
from lakehouse_ingest.tables.batch_log import decided


class DecisionKind(StrEnum):
    """Of the row that tells of it."""

    RECOVER = "recover"
    ADOPT = "adopt"


@dataclass(frozen=True)
class Decision:
    """Where a pipeline goes on from now on, and of which logs and tables."""

    kind: DecisionKind
    pipeline: str
    generation: int
    source: SourceIdentity
    offsets: Offsets
    note: str
    spans: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Offsets that will never be read, the second not among them."""
    tables: Mapping[str, Registered] = field(default_factory=dict)  # registered as they are said here
    heads: Mapping[str, Head] = field(default_factory=dict)
    settings: str = ""


def carry_out(lake: PipelineTables, record: str, others: Sequence[str], decision: Decision) -> None:
    """`others`: the tables besides the batch record that may know of a later epoch."""
    epoch, place = lake.claim(record, others)
    if place.mark and place.mark.token.generation >= decision.generation:
        raise Superseded(f"pipeline {decision.pipeline} has gone on since it was looked at: look at it again")
    lake.register(record, decision.tables)
    token = Token(decision.pipeline, decision.generation, epoch, -1)
    offsets = decision.offsets
    mark = Mark(token, decision.source, offsets, offsets, offsets, decision.settings)
    extra = {f"{keys.HEADS}{decision.pipeline}": marks.heads_text(decision.heads)}
    lake.append(place, [decided(token, decision.kind, decision.spans, decision.note)], mark, extra)
