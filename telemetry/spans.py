"""The span that a caller holds, and which span is the current one. Needs no SDK."""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import wraps
from types import TracebackType
from typing import Literal, ParamSpec, Self, TypeVar

# OpenTelemetry's words: our own work, a call to another service, messages that are processed.
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
        """Whether anyone will see the span. If not, costly attributes need not be computed."""
        return False

    @property
    def traceparent(self) -> str:
        """As W3C defines it, for links to this span. Empty if no one will see the span."""
        return ""

    def link(self, traceparent: str, /, **attributes: object) -> bool:  # noqa: ARG002  the recording one needs it
        """Links to a span of another trace. Returns False for a span that was not kept: the link would lead nowhere."""
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
    """The function for another thread, where it runs as a part of the span that is current here."""
    here = copy_context()

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # Only one thread at a time can enter a context.
        return here.copy().run(function, *args, **kwargs)

    return run
