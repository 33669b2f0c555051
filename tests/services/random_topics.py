"""A topic as nobody would have thought of it: drawn from a seed, records and settings and tables that are there."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

MADE = 1_750_000_000_000
KINDS = ("whole", "fraction", "flag", "text", "date", "time", "list", "object", "objects", "mixed", "null")
WORDS = ("a", "Bc", "d e", "\N{LATIN SMALL LETTER SHARP S}", "x" * 70, "7", "")
NAMES = (
    "n",
    "size",
    "Size",
    "place",
    "when",
    "a b",
    "Ünï",
    "event_time",
    "tags",
    "items",
    "_file",
    "2x",
    "note",
    "who",
)
LAYOUTS: tuple[list[str], ...] = (
    [],
    ["day(event_time)"],
    ["month(event_time)", "bucket(4, event_time)"],
    ["hour(event_time)"],
    ["year", "month", "day"],
)
DECLARED = [
    {"name": "n", "type": "long"},
    {"name": "size", "type": "UInt16"},
    {"name": "note", "type": "string", "required": True},
    {"name": "place", "type": "struct<lat: double, lon: double>"},
]
OTHERS = "n long, size int, `some text` string, event_time timestamp, place struct<lat: double>, since date"


@dataclass(frozen=True)
class RandomTopic:
    """What is in a topic, what is asked for, and what is there already."""

    earlier: list[bytes]  # landed before
    values: list[bytes]
    stream: dict[str, Any]
    tables: list[dict[str, Any]]
    others: str | None  # the columns of a table that somebody else has made


def drawn(seed: int) -> RandomTopic:
    draw = Random(seed)
    typed = draw.random() < 0.4
    fields = {kind: dict(_fields(draw, draw.randint(1, 6))) for kind in ("a", "b", "c")[: draw.randint(1, 3)]}
    before = [_value(draw, fields, typed) for _ in range(draw.choice((0, 0, 12)))]
    for own in fields.values():
        own.update(_fields(draw, draw.randint(1, 4)))  # some fields are others from here on, or of another kind
    values = [_value(draw, fields, typed) for _ in range(draw.randint(1, 40))]
    stream: dict[str, Any] = {"max_records": draw.choice((20, 30, 1000))}
    table = _table(draw)
    if typed:
        stream |= {"type_from": "field:type", **({"keep_types": "a|b"} if draw.random() < 0.3 else {})}
        return RandomTopic(before, values, stream, [{"table": "{type}_of", **table}], None)
    table |= _contract(draw)
    if draw.random() < 0.15:
        stream["names"] = "refuse"
    others = OTHERS if not before and draw.random() < 0.4 else None
    if others and draw.random() < 0.7:
        table["partition_by"] = ["day(event_time)"]  # as it is: else it is refused as a rule
    return RandomTopic(before, values, stream, [{"table": "events", **table}], others)


def _table(draw: Random) -> dict[str, Any]:
    chances: list[tuple[float, dict[str, Any]]] = [
        (0.3, {"sort_by": ["event_time desc"]}),
        (0.2, {"hive_directories": True}),
        (0.5, {"partition_changes": "evolve"}),
        (0.3, {"properties": {"owner": "somebody", "write.parquet.row-group-size-bytes": "1048576"}}),
        (0.2, {"max_columns": draw.randint(2, 5)}),
    ]
    found: dict[str, Any] = {"partition_by": draw.choice(LAYOUTS)}
    for chance, settings in chances:
        found |= settings if draw.random() < chance else {}
    return found


def _contract(draw: Random) -> dict[str, Any]:
    if draw.random() < 0.25:
        return {"columns": DECLARED, **({"contract": draw.choice(("freeze", "refuse"))} if draw.random() < 0.4 else {})}
    if draw.random() < 0.5:
        return {"contract": draw.choice(("evolve", "widen", "freeze", "refuse")), "rescue": draw.random() < 0.5}
    return {}


def _fields(draw: Random, count: int) -> Iterator[tuple[str, str]]:
    for name in draw.sample(NAMES, count):
        # Of another kind it makes dead letters of all records that have it.
        yield name, "time" if name == "event_time" and draw.random() < 0.8 else draw.choice(KINDS)


def _value(draw: Random, fields: dict[str, dict[str, str]], typed: bool) -> bytes:  # noqa: FBT001 - a choice of its own
    broken = draw.random()
    if broken < 0.04:
        return draw.choice((b"{", b"", b"[1]", b"\xff\xfe", b'"text"'))
    kind = draw.choice([*fields])
    found: dict[str, Any] = {name: _of(draw, what) for name, what in fields[kind].items() if draw.random() < 0.8}
    if typed and draw.random() < 0.95:
        found["type"] = kind
    if draw.random() < 0.9:
        found["ts_ms"] = MADE + draw.randrange(10**9) if draw.random() < 0.95 else "no time"
    return json.dumps(found).encode()


def _of(draw: Random, kind: str) -> Any:
    chosen: dict[str, Callable[[], Any]] = {
        "whole": lambda: draw.choice((0, -1, 70_000, 2**40, draw.randrange(100))),
        "fraction": lambda: draw.choice((0.5, 1e300, draw.random())),
        "flag": lambda: draw.random() < 0.5,
        "text": lambda: draw.choice(WORDS),
        "date": lambda: f"2024-05-{draw.randint(10, 28)}",
        "time": lambda: f"2024-05-06T07:08:{draw.randint(10, 59)}Z",
        "list": lambda: [draw.randrange(9) for _ in range(draw.randrange(3))],
        "object": lambda: {name: draw.random() for name in draw.sample(("lat", "lon", "alt"), draw.randint(0, 3))},
        "objects": lambda: [{"sku": draw.choice(WORDS), **({"n": draw.randrange(9)} if draw.random() < 0.5 else {})}],
        "mixed": lambda: draw.choice((1, "one", [1], {"one": 1}, None)),
        "null": lambda: None,
    }
    return chosen[kind]()
