"""Replicas of one pipeline that replace each other, and how long the next start waits because of them.

A start fences every earlier one. If a supervisor keeps two replicas alive, each is fenced before its first batch is
committed. Then it is started again and fences the other, so nothing is ever committed. A start that finds such a
history waits first, longer each time, so that the replica that runs meanwhile can commit.

A predecessor that was killed is no replica: a pipeline that crashes in a loop must not wait. So each start notes its
process in a property of the batch log. The last start was a replica in two cases: its process still lives on this
host; or it ran on another host, and this host had started before it.
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

RECENT_S = 600.0  # older starts have nothing to do with this one
FIRST = 2  # one start without a batch is an ordinary restart, or the overlap of a deployment; from here on we wait
LONGEST_S = 60.0
SLOTS = 8  # the last starts that are noted; two starts at the same time have different epochs, so different slots


def last_landing(heads: Mapping[str, Head], marks: Iterable[Mark]) -> int:
    """The epoch of the last start that committed a batch. Marks of batch 0 don't count: other tables may lack it."""
    landed = [*(last for last, _ in heads.values()), *(mark.token.epoch for mark in marks if mark.token.batch > 0)]
    return max(landed, default=0)


@dataclass(frozen=True)
class Process:
    """One process of any host. `began` distinguishes it from a later process with the same number."""

    host: str
    pid: int
    began: str

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. The answer is right on its own host only."""
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
    """When the process began, in ticks since the machine started; empty if the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        return ""


# -- what the batch log says --------------------------------------------------------------------------------


def noted(pipeline: str, epoch: int, process: Process, at: float | None = None) -> dict[str, str]:
    """The property that notes this start. No other of the last starts writes the same one."""
    said = {"epoch": epoch, "at": round(time() if at is None else at), **asdict(process)}
    return {f"{STARTED}{pipeline}.{epoch % SLOTS}": json.dumps(said)}


def starts(pipeline: str, properties: Mapping[str, str]) -> list[Start]:
    """The last starts, in their order. Unreadable notes are left out, because only a wait depends on them."""
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


# -- how long to wait ---------------------------------------------------------------------------------------


def wait_s(past: Sequence[Start], landed: int, me: Process, now: float) -> float:
    """Seconds to wait before `me` takes an epoch. `landed` is the epoch of the last start that committed a batch."""
    recent = [start for start in past if now - start.at < RECENT_S]
    vain = sum(start.epoch > landed for start in recent)
    return min(2.0**vain, LONGEST_S) if vain >= FIRST and replaces_replica(recent, me) else 0.0


def replaces_replica(past: Sequence[Start], me: Process) -> bool:
    """Whether the last start is a replica that a supervisor keeps alive, and not a predecessor that has ended."""
    if not past:
        return False
    *before, last = (start.process for start in past)
    if last.host == me.host:
        return last != me and last.is_alive
    return any(process.host == me.host for process in before)


# -- before a start claims ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Replicas that replace each other: which process, and how long to wait."""

    last: Process
    wait_s: float

    @property
    def sentence(self) -> str:
        return (
            f"another replica of this pipeline runs on {self.last.host} (process {self.last.pid}), and the last starts"
            " replaced each other before any of them had committed a batch; this one waits"
            f" {self.wait_s:.0f} s, so that the other can commit. Run one replica: in Kubernetes `replicas: 1` and"
            " `strategy: Recreate`"
        )


def contest(lake: PipelineTables, record: str, pipeline: str, me: Process) -> Contest | None:
    """The replicas that this start has to wait for; None if it may claim at once."""
    state = lake.find(record)
    past, now = starts(pipeline, state.properties if state else {}), time()
    if state is None or not wait_s(past, 0, me, now):
        return None  # usually so, and then the tables need not be asked which epoch committed last
    mark = lake.seen(state).mark
    seconds = wait_s(past, last_landing(lake.heads(record), [mark] if mark else []), me, now)
    return Contest(past[-1].process, seconds) if seconds else None
