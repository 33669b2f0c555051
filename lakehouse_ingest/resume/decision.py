"""Writes a person's decision into the ledger: a mark in the batch log, from which every start goes on.

The mark is written under a new epoch, as a start does it. That fences a pipeline that still runs.
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
    """The `kind` of a decision's row in the batch log."""

    RECOVER = "recover"
    ADOPT = "adopt"


@dataclass(frozen=True)
class Decision:
    """Where a pipeline goes on from now on, in which logs, and with which tables."""

    kind: DecisionKind
    pipeline: str
    generation: int
    source: SourceIdentity
    offsets: Offsets
    note: str
    spans: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Offsets that will never be read, from the first up to but not including the second."""
    tables: Mapping[str, Registered] = field(default_factory=dict)  # tables to register, and how
    heads: Mapping[str, Head] = field(default_factory=dict)
    settings: str = ""


def carry_out(lake: PipelineTables, record: str, others: Sequence[str], decision: Decision) -> None:
    """Write the decision. `others`: tables besides the batch log that may know of a later epoch."""
    place, _ = lake.claim(record, others)
    if place.mark and place.mark.token.generation >= decision.generation:
        raise Superseded(
            f"another decision about pipeline {decision.pipeline} was written in the meantime; run this command again"
        )
    lake.register(place, decision.tables)
    token = Token(decision.pipeline, decision.generation, place.epoch, -1)
    offsets = decision.offsets
    mark = Mark(token, decision.source, offsets, offsets, offsets, decision.settings)
    extra = {f"{keys.HEADS}{decision.pipeline}": marks.heads_text(decision.heads)}
    lake.publication.append(place, [decided(token, decision.kind, decision.spans, decision.note)], mark, extra)
