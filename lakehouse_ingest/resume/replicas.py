"""Starts of one pipeline that replace each other, and how long the next one waits before it does so too.

A start fences whoever ran before. Where a supervisor keeps two replicas alive, each of them is fenced before its first
batch is done, is started again, and fences the other: nothing lands. So a start that finds such a past waits first,
longer each time, and whoever runs meanwhile can land.

A replica must be told from a predecessor that was killed: a pipeline that crashes in a loop, or is killed every few
seconds, must not wait. Each start notes its process in a property of the batch record. The last one was a replica
where its process still lives on this host, or where it is another host's and this host had started before it.
"""

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time

from lakehouse_ingest.environment.embedded.claim import alive
from lakehouse_ingest.ledger.keys import STARTED
from lakehouse_ingest.ledger.marks import Head, Mark
from lakehouse_ingest.tables import PipelineTables

RECENT_S = 600.0  # what lies longer ago tells of another day
FIRST = 2  # so many starts without a batch are an ordinary restart, or the overlap of a deployment
LONGEST_S = 60.0
SLOTS = 8  # the last starts that are remembered; two that come at once never write the same property


def last_landing(heads: Mapping[str, Head], marks: Iterable[Mark]) -> int:
    """The epoch of the last start that has landed a batch; a mark of batch 0 is of one that other tables may miss."""
    landed = [*(last for last, _ in heads.values()), *(mark.token.epoch for mark in marks if mark.token.batch > 0)]
    return max(landed, default=0)


@dataclass(frozen=True)
class Process:
    """One process of any host; `began` tells it from a later one of its number."""

    host: str
    pid: int
    began: str

    @property
    def is_alive(self) -> bool:
        """Asked on its own host."""
        return alive(self.pid) and _beginning(self.pid) == self.began


@dataclass(frozen=True)
class Start:
    epoch: int
    at: float  # seconds since 1970
    process: Process


def this_process() -> Process:
    return of_this_host(os.getpid())


def of_this_host(pid: int) -> Process:
    return Process(socket.gethostname(), pid, _beginning(pid))


def _beginning(pid: int) -> str:
    """In ticks since the machine began; nothing where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        return ""


# -- what the batch record says -----------------------------------------------------------------------------


def noted(pipeline: str, epoch: int, process: Process, at: float | None = None) -> dict[str, str]:
    """The property that tells of this start; no other start that is remembered writes the same one."""
    said = {"epoch": epoch, "at": round(time() if at is None else at), **asdict(process)}
    return {f"{STARTED}{pipeline}.{epoch % SLOTS}": json.dumps(said)}


def starts(pipeline: str, properties: Mapping[str, str]) -> list[Start]:
    """The last ones, in their order. What nobody can read is not there: nothing depends on it but a wait."""
    slot = re.compile(rf"{re.escape(STARTED)}{re.escape(pipeline)}\.\d+")
    found = []
    for key, text in properties.items():
        if slot.fullmatch(key):
            try:
                match json.loads(text):
                    case {"epoch": int(epoch), "at": int(at), "host": str(host), "pid": int(pid), "began": str(began)}:
                        found.append(Start(epoch, at, Process(host, pid, began)))
            except ValueError:
                continue
    return sorted(found, key=lambda start: start.epoch)


# -- the law ------------------------------------------------------------------------------------------------


def wait_s(past: Sequence[Start], landed: int, me: Process, now: float) -> float:
    """Before a start of `me` takes its epoch; `landed`: the epoch of the last start that has landed a batch."""
    recent = [start for start in past if now - start.at < RECENT_S]
    vain = sum(start.epoch > landed for start in recent)
    return min(2.0**vain, LONGEST_S) if vain >= FIRST and replaces_replica(recent, me) else 0.0


def replaces_replica(past: Sequence[Start], me: Process) -> bool:
    """Whether the last of them is another one of us that is kept alive, and no predecessor that has ended."""
    if not past:
        return False
    *before, last = (start.process for start in past)
    if last.host == me.host:
        return last != me and last.is_alive
    return any(process.host == me.host for process in before)


# -- before a start claims ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Replicas that replace each other: what to say, and how long to wait."""

    last: Process
    wait_s: float

    @property
    def sentence(self) -> str:
        return (
            f"another replica of this pipeline runs on {self.last.host} (process {self.last.pid}), and the last starts"
            " replaced each other before any of them had landed a batch; this one waits"
            f" {self.wait_s:.0f} s, so that the other can land. Run one replica: in Kubernetes `replicas: 1` and"
            " `strategy: Recreate`"
        )


def contest(lake: PipelineTables, record: str, pipeline: str, me: Process) -> Contest | None:
    """None where a start may claim at once."""
    state = lake.find(record)
    past, now = starts(pipeline, state.properties if state else {}), time()
    if state is None or not wait_s(past, 0, me, now):
        return None  # whatever has landed: as a rule nothing more need be asked
    mark = lake.seen(state).mark
    seconds = wait_s(past, last_landing(lake.heads(record), [mark] if mark else []), me, now)
    return Contest(past[-1].process, seconds) if seconds else None
