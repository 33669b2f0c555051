"""One process serves a folder: a lock that ends with its holder, and a note for the processes that come later.

The holder's JVM inherits the lock. So a lock without a living holder means that a JVM is about to end and still has the
port and the files: we wait for it. A free lock means that port and files are free.
"""

import fcntl
import json
import os
import random
import secrets
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lakehouse_ingest.errors import SettingsRefused, TryAgain

LOOPBACK = "127.0.0.1"
LISTENS = "0A"  # the state of a listening socket in the kernel's tables
PORTS_TRIED = 100
# Between the ports of usual servers and those that Linux gives to clients.
FIRST_PORT, USUAL_FIRST = 10_240, 32_768
PREDECESSOR_SECONDS = 60.0  # its JVM ends by itself, but a broker needs time to shut down on a busy machine
PASSING_SECONDS = 30.0


@dataclass(frozen=True)
class Note:
    """Who serves a folder, and where. It stays, so that the next server listens at the same place."""

    uri: str
    port: int
    pid: int
    java: int
    passing: bool = False  # served only for a moment, by a command that looks into it
    token: str = field(default="", repr=False)  # what clients have to send; empty where all may come


class FolderClaim:
    """The right to serve a folder, held from `take` to `release`, or to the death of process and JVM."""

    def __init__(self, folder: Path, note: str, refusal: Callable[[str], str]) -> None:
        """`refusal` makes a sentence that names the holder of the folder."""
        self._folder, self.note, self._refusal = folder, folder / note, refusal
        self._held: int | None = None

    def take(self) -> int:
        """The open lock, for the JVM to inherit. Refused while another process serves the folder."""
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as broken:
            raise SettingsRefused(f"{self._folder} can't be written ({broken}): choose another place.") from broken
        began, patience = time.monotonic(), None
        while not _locked(lock):
            note = self.read()
            # A process that only looks may die meanwhile: then we wait for its JVM.
            if (worth := _worth_waiting_for(note)) != patience:
                began, patience = time.monotonic(), worth
            if time.monotonic() - began >= worth:
                os.close(lock)
                # A process that only looks will be gone soon: a supervisor should start us again until then.
                looking = note is not None and note.passing and alive(note.pid)
                raise (TryAgain if looking else SettingsRefused)(self._refusal(_holder(note)))
            time.sleep(0.05)
        self._held = lock
        return lock

    def read(self) -> Note | None:
        try:
            return Note(**json.loads(self.note.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, note: Note) -> None:
        fresh = self.note.with_suffix(".new")
        fresh.unlink(missing_ok=True)  # a process that was killed may have left one
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(asdict(note)) + "\n")
        fresh.replace(self.note)

    def token(self) -> str:
        """The last server's token, so that readers keep their settings; a new one where others could have read it."""
        note = self.read()
        kept = note.token if note and not stat.S_IMODE(self.note.stat().st_mode) & 0o077 else ""
        return kept or secrets.token_hex(24)

    def is_at(self, port: int) -> bool:
        """Whether the note's owner listens at the port, as far as the system shows: only they may have the token."""
        users = _listeners(port)
        try:
            owner = self.note.stat().st_uid
        except OSError:
            return False
        return users is None or (bool(users) and {*users} == {owner})

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def choose_port(wanted: int | None, last: Note | None, usual: int) -> int:
    """The wanted port, or any for 0. Without a wish it is the last one, or the first free one from `usual` on."""
    if wanted == 0:
        return any_free_port()
    first = wanted or (last.port if last else usual)
    if free(first):
        return first
    if wanted:
        raise SettingsRefused(f"Port {wanted} of {LOOPBACK} is taken: choose another, or none to get a free one.")
    for port in range(usual, usual + PORTS_TRIED):
        if free(port):
            return port
    raise TryAgain(f"No port from {usual} to {usual + PORTS_TRIED - 1} is free on {LOOPBACK}: name one.")


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _listeners(port: int) -> list[int] | None:
    """The users whose processes listen at this port of the loopback; None where the system does not show it."""
    found: list[int] | None = None
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path(table).read_text(encoding="utf-8").splitlines()[1:]]
            here = [row for row in rows if row[1].endswith(f"0100007F:{port:04X}") and row[3] == LISTENS]
            found = [*(found or []), *(int(row[7]) for row in here)]
    return found


def alive(pid: int) -> bool:
    """Whether the process runs. One that has ended, and that nobody has waited for, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return True
    return state != "Z"


def any_free_port() -> int:
    """Below the ports that the system gives to clients: one of those may be taken before the server listens."""
    for _ in range(PORTS_TRIED):
        if free(port := random.randrange(FIRST_PORT, _first_client_port())):  # noqa: S311 - no secret
            return port
    raise TryAgain(f"No port from {FIRST_PORT} on is free on {LOOPBACK}: name one.")


def _first_client_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return USUAL_FIRST
    return first if first > FIRST_PORT + PORTS_TRIED else USUAL_FIRST


def _worth_waiting_for(holder: Note | None) -> float:
    """Seconds: for a process that only looks, or for the JVM of one that has died."""
    if holder is None:
        return 0.0
    if not alive(holder.pid):
        return PREDECESSOR_SECONDS
    return PASSING_SECONDS if holder.passing else 0.0


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(note: Note | None) -> str:
    if note is None:
        return "another process that has just started"
    who = note.pid if alive(note.pid) else note.java
    return f"process {who} at {note.uri}"
