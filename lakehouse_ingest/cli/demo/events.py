"""Made-up events of a plant, of several types on one topic. One in 200 is broken, with a reason known beforehand."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from lakehouse_ingest.records import Reason

READING, ALARM, MAINTENANCE, HEARTBEAT = "reading", "alarm", "maintenance", "heartbeat"
SHARES = {READING: 0.84, HEARTBEAT: 0.08, ALARM: 0.05, MAINTENANCE: 0.03}
BROKEN_EVERY = 200
STATIONS = 40
DAYS_BACK = 3
LATE = 0.4  # this part of the events comes late, by up to so many days
HALLS = {"paint shop": 27.5, "press shop": 24.0, "assembly": 21.0, "cold store": 4.5}  # and their usual temperature

Fields = Mapping[str, Any]

# What alarms begin to say one day: each run brings the first of these that no earlier one has brought.
LATER: Mapping[str, Callable[[Random], Any]] = {
    "acknowledged_by": lambda chance: chance.choice(("Ada", "Ben", "Chidi", "Dana")),
    "shift": lambda chance: chance.choice(("early", "late", "night")),
    "stopped_minutes": lambda chance: round(chance.expovariate(1 / 12), 1),
    "cause": lambda chance: {"part": chance.choice(("belt", "pump", "valve")), "replaced": chance.random() < 0.5},  # noqa: PLR2004
}


@dataclass
class Made:
    """What the producer knows of its events; final once it has stopped."""

    first: int  # number of its first event
    acknowledged: int = 0
    sound: Counter[str] = field(default_factory=Counter)  # by type
    broken: Counter[str] = field(default_factory=Counter)  # by the reason that they should be dead-lettered for
    filtered: Counter[int] = field(default_factory=Counter)  # acknowledged ones that should be, by partition
    column: str | None = None  # the field that appeared, should become one
    since: int | None = None  # number of the first event that has it
    having: int = 0  # sound events that have it


def event(number: int, now: float, kind: str | None = None, later: Sequence[str] = ()) -> dict[str, Any]:
    chance = Random(number)  # noqa: S311 - a made-up plant is no secret
    kind = kind or chance.choices([*SHARES], [*SHARES.values()])[0]
    station = chance.randrange(STATIONS)
    late = chance.random() * DAYS_BACK * 86_400 if chance.random() < LATE else 0.0
    return {
        "type": kind,
        "number": number,
        "ts_ms": int((now - late) * 1000),
        "station": f"station-{station:02}",
        "location": (hall := [*HALLS][station % len(HALLS)]),
        **MAKERS[kind](chance, hall, now),
        **({name: LATER[name](chance) for name in later} if kind == ALARM else {}),
    }


def _reading(chance: Random, hall: str, _now: float) -> Fields:
    return {
        "temperature": round(chance.gauss(HALLS[hall], 1.5), 2),
        "humidity": round(chance.uniform(30, 70), 1),
        "battery": chance.randint(5, 100),
        "ok": chance.random() < 0.98,  # noqa: PLR2004 - how often a station is well
    }


def _alarm(chance: Random, hall: str, _now: float) -> Fields:
    limit = HALLS[hall] + 5
    return {
        "code": f"E{chance.randint(200, 240)}",
        "level": chance.randint(1, 4),
        "measured": {"value": round(limit + chance.expovariate(0.5), 2), "allowed": limit},
    }


def _maintenance(chance: Random, _hall: str, now: float) -> Fields:
    due = datetime.fromtimestamp(now, UTC) + timedelta(days=chance.randint(20, 200))
    parts = chance.sample(("belt", "filter", "pump", "seal", "valve"), chance.randint(0, 2))
    return {
        "work": chance.choice(("cleaning", "inspection", "oil change", "repair")),
        "minutes": chance.randint(5, 240),
        "parts": [{"name": part, "count": chance.randint(1, 4)} for part in parts],
        "next_on": due.date().isoformat(),
    }


def _heartbeat(chance: Random, _hall: str, _now: float) -> Fields:
    return {"up_s": chance.randrange(10**6)}


MAKERS = {READING: _reading, ALARM: _alarm, MAINTENANCE: _maintenance, HEARTBEAT: _heartbeat}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _without(fields: Fields, name: str) -> bytes:
    return as_json({key: value for key, value in fields.items() if key != name})


# Each with the type of event that it is made from.
BROKEN: Sequence[tuple[Reason, str, Callable[[Fields], bytes | None]]] = (
    (Reason.BROKEN, READING, lambda fields: as_json(fields)[:-9]),
    (Reason.NO_TABLE, READING, lambda fields: _without(fields, "type")),
    (Reason.EMPTY, READING, lambda _: b""),
    (Reason.NOT_OBJECT, READING, lambda fields: as_json([fields])),
    (Reason.WRONG_TYPE, ALARM, lambda fields: as_json({**fields, "level": "high"})),
    (Reason.OUT_OF_RANGE, READING, lambda fields: as_json({**fields, "battery": 300})),
    (Reason.MISSING, READING, lambda fields: _without(fields, "station")),
    (Reason.EVENT_TIME, READING, lambda fields: as_json({**fields, "ts_ms": fields["ts_ms"] * 10**6})),  # that is ns
    (
        Reason.NOT_TEXT,
        READING,
        lambda fields: json.dumps({**fields, "location": "K\u00fchlhaus"}, ensure_ascii=False).encode("latin-1"),
    ),
    (Reason.BROKEN, READING, lambda fields: as_json(fields) + as_json(fields)),
    (Reason.NO_TABLE, ALARM, lambda fields: as_json({**fields, "type": None})),
    (Reason.EMPTY, READING, lambda _: None),
    (Reason.WRONG_TYPE, READING, lambda fields: as_json({**fields, "temperature": "warm"})),
    (Reason.NOT_OBJECT, READING, lambda fields: as_json(fields["temperature"])),
    (Reason.EVENT_TIME, MAINTENANCE, lambda fields: _without(fields, "ts_ms")),
)


def broken(number: int) -> tuple[Reason, str, Callable[[Fields], bytes | None]] | None:
    """How this event is broken, if it is; from the first hundred on, so that the shortest run has some."""
    if number % BROKEN_EVERY != BROKEN_EVERY // 2:
        return None
    return BROKEN[number // BROKEN_EVERY % len(BROKEN)]
