"""One shape for every log line: ours from structlog, and those of py4j, pyiceberg and urllib3.

All lines go to stderr through one handler, with UTC time, level, the current span, and without secrets.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from telemetry.masking import masked, masked_text
from telemetry.settings import Level, LogOptions
from telemetry.spans import current

# Two trees of loggers: our lines pass at the level of the settings, all others from WARNING on.
OURS = "structlog"

Event = MutableMapping[str, Any]


class _Stderr(logging.StreamHandler[TextIO]):
    """Looks stderr up for every line, so that a replaced stderr gets the lines."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        pass


def _span_ids(_: Any, __: str, event: Event) -> Event:
    span = current()
    if span.trace_id is not None:
        event.setdefault("trace_id", span.trace_id)
        event.setdefault("span_id", span.span_id)
    return event


def _without_secrets(_: Any, __: str, event: Event) -> Event:
    kept = ("_record", "_from_structlog", "exc_info")
    return {key: value if key in kept else masked(value, key) for key, value in event.items()}


def _where(logger: Any, _: str, event: Event) -> Event:
    record = event.get("_record")
    name = record.name if record is not None else logger.name.removeprefix(OURS).removeprefix(".")
    if name:
        event.setdefault("logger", name)
    return event


def _rendered_without_secrets(_: Any, __: str, line: Any) -> str:
    """For a value that became text only when the line was rendered."""
    return masked_text(str(line))


def _spelled_out(_: Any, __: str, event: Event) -> Event:
    """For a terminal, which obeys escapes from anyone. Stacks keep their lines; JSON spells escapes out anyway."""
    parted = ("exception", "stack")
    return {
        key: "\n".join(map(_visible, value.split("\n") if key in parted else [value]))
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


def _visible(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _own_logger(*name: Any) -> logging.Logger:
    return logging.getLogger(".".join((OURS, *map(str, name[:1]))))


def configure(settings: LogOptions | None = None) -> None:
    """Takes over the logging of the process. Call it once."""
    settings = settings or LogOptions()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _where,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _span_ids,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    structlog.configure(
        # The level is looked up with each line, so that loggers which were bound before it changed respect it too.
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=_own_logger,
        cache_logger_on_first_use=False,
    )
    handler = _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(settings),
                _rendered_without_secrets,
            ],
        )
    )
    root = logging.getLogger()
    for old in [it for it in root.handlers if type(it) in (logging.StreamHandler, _Stderr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(settings.level)
    logging.captureWarnings(True)


def set_level(name: Level) -> None:
    """From the next line on, also for loggers that are in use."""
    level = logging.getLevelNamesMapping()[name.upper()]
    logging.getLogger().setLevel(max(level, logging.WARNING))
    logging.getLogger(OURS).setLevel(level)


def _renderers(settings: LogOptions) -> list[Processor]:
    terminal = sys.stderr.isatty()
    if settings.format == "text" or (settings.format == "auto" and terminal):
        # Pretty tracebacks would show local variables, and with them secrets.
        text = structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
        return [_spelled_out, text]
    return [structlog.processors.JSONRenderer()]
