"""What other writers have left in the summaries of a table's snapshots: their traces.

Spark's sink     the query's id and the number of its batch; the offsets are in its checkpoint
Kafka Connect    `kafka.connect.offsets.<control topic>.<group>`, offsets of the control topic; the offsets of the
                 source are committed to that group. Tabular's sink has the group `cg-control-…`, Apache's sink the
                 connector's own group, `connect-…`
Flink's sink     the number of a checkpoint, and nothing else
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

QUERY, BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
CONTROL = "kafka.connect.offsets."
FLINK = "flink.max-committed-checkpoint-id"


class Writer(StrEnum):
    SPARK = "Spark"
    CONNECT = "Kafka Connect"
    FLINK = "Flink"


@dataclass(frozen=True)
class Traces:
    batches: Mapping[str, int] = field(default_factory=dict)  # the newest batch, by the id of a Spark query
    controls: tuple[str, ...] = ()  # `<control topic>.<group>` of each sink of Kafka Connect
    last: Writer | None = None

    def control_of(self, group: str) -> str | None:
        """The control topic of the sink that has this group."""
        return next((each.removesuffix(f".{group}") for each in self.controls if each.endswith(f".{group}")), None)


def traces(ancestors: Iterable[Mapping[str, str]]) -> Traces:
    """`ancestors`: the summaries in the history of main, newest first."""
    batches: dict[str, int] = {}
    controls: dict[str, None] = {}
    last: Writer | None = None
    for summary in ancestors:
        if (query := summary.get(QUERY)) and summary.get(BATCH, "").isdecimal():
            # Spark's own sink does the same: the newest commit of a query says how far the query has come.
            batches.setdefault(query, int(summary[BATCH]))
            last = last or Writer.SPARK
        for key in summary:
            if key.startswith(CONTROL):
                controls[key.removeprefix(CONTROL)] = None
                last = last or Writer.CONNECT
        if FLINK in summary:
            last = last or Writer.FLINK
    return Traces(batches, tuple(controls), last)


def together(tables: Iterable[Traces]) -> Traces:
    """The traces of several tables. A batch counts as committed only if every one of them has it."""
    batches: dict[str, int] = {}
    controls: dict[str, None] = {}
    last: Writer | None = None
    for each in tables:
        batches |= {query: min(batch, batches.get(query, batch)) for query, batch in each.batches.items()}
        controls |= dict.fromkeys(each.controls)
        last = last or each.last
    return Traces(batches, tuple(controls), last)
