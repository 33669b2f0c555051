"""SIGTERM and Ctrl-C as an event that any thread may wait for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType


@contextmanager
def stopping(stop: Event) -> Iterator[None]:
    """Sets `stop` on the first of either; the second one interrupts as usual. For the main thread only.

    A handler may run in the middle of the main thread's own `stop.wait()`, which holds the event's lock: to set it
    there would wait for itself. A queue of this kind may be filled at any moment, and another thread empties it.
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
