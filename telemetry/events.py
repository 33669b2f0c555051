"""An event is a value, and listeners make something of it: a log line, metrics, a page, a line on a terminal.

@dataclass(frozen=True, kw_only=True)
class TableFull(Event, name="table_full", level="warning"):
    table: str

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.full", table=self.table)

events = Events(LogLines(structlog.get_logger()), Metrics(Meter(telemetry, pipeline="plant-7")))
events.emit(TableFull(table="iot.sensors"))

Every event has a log line: its fields, under its name. Line and metrics of one event stand in one class, so that they
say the same.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from telemetry.settings import Level
from telemetry.start import Telemetry


class Meter:
    """Records metrics with attributes that all of them have, such as the pipeline's name."""

    def __init__(self, telemetry: Telemetry, **common: object) -> None:
        self._telemetry, self._common = telemetry, common

    def count(self, instrument: str, value: float = 1, /, **attributes: object) -> None:
        self._telemetry.count(instrument, value, **self._common, **attributes)

    def record(self, instrument: str, value: float, /, **attributes: object) -> None:
        self._telemetry.record(instrument, value, **self._common, **attributes)

    def gauge(self, instrument: str, value: float, /, **attributes: object) -> None:
        self._telemetry.gauge(instrument, value, **self._common, **attributes)


@dataclass(frozen=True)
class Event:
    """Something that happened; its subclasses are frozen dataclasses."""

    name: ClassVar[str]
    _level: ClassVar[Level]

    def __init_subclass__(cls, *, name: str = "", level: Level | None = None) -> None:
        """A class without a name is a base of others."""
        if name:
            cls.name = name
        if level:
            cls._level = level

    @property
    def level(self) -> Level:
        return self._level

    def line(self) -> dict[str, object]:
        """What the log line says beside the event's name. Fields that are None are left out."""
        said = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: _plain(value) for name, value in said if value is not None}

    def measure(self, to: Meter) -> None:
        """The metrics of this event; none, unless a subclass says so."""


def _plain(value: object) -> object:
    match value:
        case BaseException():
            return f"{type(value).__qualname__}: {value}"
        case float():
            return round(value, 3)
        case Mapping():
            return dict(value)
        case tuple():
            return list(value)
    return value


Listener = Callable[[Event], None]


class Events:
    """Hands each event to its listeners, in their order. Shared by all threads of a pipeline."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def add(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """While the block runs."""
        self.add(listener)
        try:
            yield
        finally:
            self.remove(listener)


class LogLines:
    """A listener that writes one line for each event. `log`: a structlog logger."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __call__(self, event: Event) -> None:
        getattr(self._log, event.level)(event.name, **event.line())


class Metrics:
    """A listener that records the metrics of each event."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __call__(self, event: Event) -> None:
        event.measure(self._meter)
