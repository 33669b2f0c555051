"""SIGTERM and Ctrl-C as an event that any thread may wait for, or as an orderly end; SIGHUP as a call."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM. Like Ctrl-C it ends everything in order on its way up; `terminable` catches it."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the block, in order and without an error. For the main thread only.

    By default Python ends at once, and leaves what was begun to the next start.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Terminated:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping(stop: Event) -> Iterator[None]:
    """Sets `stop` on the first of either signal; the second one interrupts as usual. For the main thread only.

    A handler may run in the middle of the main thread's own `stop.wait()`, which holds the event's lock: to set the
    event there would be a deadlock. A `SimpleQueue` may be filled at any moment, and another thread empties it.
    """
    asked: SimpleQueue[int] = SimpleQueue()

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.put(number)
        for again in (signal.SIGINT, signal.SIGTERM):
            signal.signal(again, signal.default_int_handler)

    def relay() -> None:
        if asked.get():
            stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    thread = Thread(target=relay, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(0)
        thread.join()


@contextmanager
def on_hangup(do: Callable[[], None]) -> Iterator[None]:
    """Calls it in another thread at each SIGHUP. For the main thread only.

    In a terminal the signal means that the terminal is gone, and a signal that is ignored is ignored on purpose. In
    both cases nothing changes.
    """
    if os.isatty(0) or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    asked: SimpleQueue[bool] = SimpleQueue()

    def relay() -> None:
        while asked.get():
            do()

    signal.signal(signal.SIGHUP, lambda *_: asked.put(True))
    thread = Thread(target=relay, name="hangups", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        asked.put(False)
        thread.join()
