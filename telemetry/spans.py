"""The span that a caller holds, and which one is the current one. Knows no SDK."""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import wraps
from types import TracebackType
from typing import Literal, ParamSpec, Self, TypeVar

# By OpenTelemetry's words: work of our own, a call to somebody else's, messages that are processed.
Kind = Literal["internal", "client", "consumer"]
P = ParamSpec("P")
R = TypeVar("R")


class Span:
    """Switched off: one shared object that does nothing. The recording one derives from it."""

    __slots__ = ()

    trace_id: str | None = None
    span_id: str | None = None

    @property
    def recorded(self) -> bool:
        """Whether anybody will see it: what costs something to find out for it need not be found out otherwise."""
        return False

    @property
    def traceparent(self) -> str:
        """What W3C calls so, for links to it; nothing where nobody will see it."""
        return ""

    def link(self, traceparent: str, /, **attributes: object) -> bool:  # noqa: ARG002  the recording one needs it
        """To a span of another trace. Not to one that its own process did not keep: it would lead nowhere."""
        return False

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
