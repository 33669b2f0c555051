"""The span that a caller holds, and which one is the current one. Knows no SDK."""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import wraps
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Span:
    """Switched off: one shared object that does nothing. The recording one derives from it."""

    __slots__ = ()

    trace_id: str | None = None
    span_id: str | None = None

    def set(self, **attributes: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


NO_SPAN = Span()
CURRENT: ContextVar[Span] = ContextVar("telemetry_span", default=NO_SPAN)


def current() -> Span:
    return CURRENT.get()


def carried(function: Callable[P, R]) -> Callable[P, R]:
    """The function, to be run in another thread as a part of the span that is current here and now."""
    here = copy_context()

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered by one thread at a time only.
        return here.copy().run(function, *args, **kwargs)

    return run
