"""What other writers have left in the summaries of a table's snapshots.

Spark's sink     the query's id and the number of its batch; the offsets are in its checkpoint
Kafka Connect    `kafka.connect.offsets.<control topic>.<group>`, offsets of the control topic; those of the source
                 are committed to that very group. So it is in Tabular's sink, whose group is `cg-control-…`, as in
                 Apache's, whose group is the connector's own, `connect-…`
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
    batches: Mapping[str, int] = field(default_factory=dict)  # of each of Spark's queries the newest
    controls: tuple[str, ...] = ()  # of each of Connect's sinks its control topic and group, with a dot between
    last: Writer | None = None

    def control_of(self, group: str) -> str | None:
        """The control topic of the sink that has this group."""
        return next((each.removesuffix(f".{group}") for each in self.controls if each.endswith(f".{group}")), None)


def traces(ancestors: Iterable[Mapping[str, str]]) -> Traces:
    """`ancestors`: main's summaries, newest first."""
    batches: dict[str, int] = {}
    controls: dict[str, None] = {}
    last: Writer | None = None
    for summary in ancestors:
        if (query := summary.get(QUERY)) and summary.get(BATCH, "").isdecimal():
            # As Spark's own sink looks for it: the newest commit of the query says how far it has come.
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
    """Of several tables; a batch that one of them lacks has not landed."""
    batches: dict[str, int] = {}
    controls: dict[str, None] = {}
    last: Writer | None = None
    for each in tables:
        batches |= {query: min(batch, batches.get(query, batch)) for query, batch in each.batches.items()}
        controls |= dict.fromkeys(each.controls)
        last = last or each.last
    return Traces(batches, tuple(controls), last)
