"""Acknowledging: rows that were removed on purpose are noted in the batch log, and no longer count as lost.

The note holds the ranges, the reason and the time. A pipeline that runs meanwhile is not disturbed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.operations.proposal import Proposal
from lakehouse_ingest.operations.verify.missing_ranges import MOST, RangesByPartition, fewer, narrowed, total
from lakehouse_ingest.operations.verify.offset_sets import Run
from lakehouse_ingest.operations.verify.recorded_batches import ranges_committed_to
from lakehouse_ingest.operations.verify.stream_verification import Verification
from lakehouse_ingest.operations.verify.streams import verification_of
from lakehouse_ingest.records import Token, TopicPartition
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.tables import PipelineTables, batch_log

HOW = "Give --yes with a --reason, or fix the cause of what is lost."

Wanted = Mapping[TopicPartition, Sequence[Run]]


@dataclass(frozen=True)
class Losses:
    """What one stream has lost, and what of it a person means."""

    name: str
    lake: PipelineTables
    batch_log: str  # its name
    verified: Verification | None = None  # None: the catalog knows nothing of the stream
    meant: RangesByPartition = field(default_factory=dict)
    done: bool = False

    @property
    def lost(self) -> int:
        return self.verified.verdict.lost if self.verified else 0

    @property
    def acknowledged(self) -> int:
        return total(self.meant) if self.done else 0


def look(settings: Settings, uri: str, *, reason: str, only: str | None, wanted: Wanted) -> Proposal[Sequence[Losses]]:
    """`uri`: of the catalog; `only`: the topic or table, and `wanted` the offsets, that are meant."""
    found = [_losses_of(settings, stream, uri, only, wanted) for stream in settings.streams]

    def apply() -> Proposal[Sequence[Losses]]:
        return _proposal([_applied(each, reason) for each in found])

    return replace(_proposal(found), apply=apply if any(each.meant for each in found) else None)


def _proposal(found: Sequence[Losses]) -> Proposal[Sequence[Losses]]:
    return Proposal(found, pending=any(each.lost > each.acknowledged for each in found), says=HOW)


def ranges_of(offsets: Sequence[str]) -> Wanted:
    """From words such as `sensors/0/40-42`."""
    wanted: dict[TopicPartition, list[Run]] = {}
    for text in offsets:
        found = re.fullmatch(r"(.+)/(\d+)/(\d+)(?:-(\d+))?", text)
        first, last = (int(found[3]), int(found[4] or found[3])) if found else (1, 0)
        if not found or first > last:
            raise SettingsRefused(f"--offsets {text} should be topic/partition/first-last, such as sensors/0/40-42")
        wanted.setdefault((found[1], int(found[2])), []).append((first, last))
    return wanted


def _losses_of(settings: Settings, stream: StreamSettings, uri: str, only: str | None, wanted: Wanted) -> Losses:
    lake, verified = verification_of(settings, stream, uri)
    namespace = settings.catalog.namespace
    losses = Losses(stream.known_as, lake, settings.batch_log, verified)
    if verified is None or not verified.verdict.lost:
        return losses
    meant = narrowed(verified.lost, wanted) if wanted else verified.lost
    if only and (of_topic := {at: ranges for at, ranges in meant.items() if at[0] == only}):
        meant = of_topic
    elif only:
        table = only if "." in only else f"{namespace}.{only}"
        pinned = lake.pin(losses.batch_log)
        committed = ranges_committed_to(lake, pinned, verified.verdict.pipeline, table) if pinned else {}
        meant = narrowed(meant, committed)
    return replace(losses, meant=fewer(meant, MOST))


def _applied(losses: Losses, reason: str) -> Losses:
    verified, meant = losses.verified, losses.meant
    if not verified or not meant:
        return losses
    if losses.lake.find(losses.batch_log) is None:
        raise TableChanged(
            f"the batch log {losses.batch_log} is not there, and nothing else can hold the note; start the pipeline,"
            " which creates it again, then acknowledge"
        )
    token = Token(verified.verdict.pipeline, verified.generation, verified.epoch, -1)
    logs: dict[str, int] = {}
    for at, ranges in meant.items():
        for log in verified.logs[at[0]]:
            logs[log] = logs.get(log, 0) + total({at: ranges})
    parts = {at: [(each.start, each.end, each.count) for each in ranges] for at, ranges in meant.items()}
    losses.lake.append_beside(losses.batch_log, [batch_log.acknowledged(token, parts, logs, reason)])
    return replace(losses, done=True)
