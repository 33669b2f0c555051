"""What each reader is asked, and what it has to answer: the same for all of them.

A question is columns of a table, of all its rows or of those of one day. What comes back is compared value by value
with what was sent.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.readers.reading import Day, Reader, Rows
from tests.readers.written import BROKEN, BYTES, DAYS, FIRST, GONE, KEPT, MADE, SECOND, THEIRS, TOPIC

UTC = dt.UTC
NULLS = 3  # the row of `nested` that holds nothing


@dataclass(frozen=True)
class Question:
    name: str
    asked: str  # in the words of the page
    table: str
    columns: Sequence[str]
    wanted: Rows
    day: Day | None = None
    seen: Callable[[Rows], Rows] = list  # what of the answer is compared

    def ask(self, reader: Reader) -> None:
        found = self.seen([plain(row) for row in reader.rows(self.table, self.columns, self.day)])
        assert same(_sorted(found), _sorted(self.wanted)), found


def plain(value: Any) -> Any:
    """What the clients give, in one spelling: a row of fields as a dict, a map too, a time in UTC."""
    match value:
        case dt.datetime():
            return value.astimezone(UTC) if value.tzinfo else value
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):  # Arrow's map
            return {_text(key): plain(each) for key, each in value}
        case list():
            return [plain(each) for each in value]
    return value


def same(found: Any, wanted: Any) -> bool:
    """Equal and of one type, but for text that comes as bytes: to ClickHouse both are one."""
    match found, wanted:
        case list(), dict():
            return not found and not wanted  # Arrow's map, if it is empty
        case dict(), dict():
            return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
        case list(), list():
            return len(found) == len(wanted) and all(map(same, found, wanted))
        case bytes(), str():
            return found == wanted.encode()
    return type(found) is type(wanted) and bool(found == wanted)


def _text(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (str(row.get("id")), str(sorted(row.items()))))


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).astimezone(UTC)


def _of(table: str, *names: str) -> Rows:
    return [{name: row.get(name) for name in ("id", *names)} for row in (*FIRST[table], *SECOND.get(table, ()))]


def _made(table: str, **values: Sequence[Any]) -> Rows:
    """The rows' ids, and what these columns hold in each."""
    ids = [row["id"] for row in FIRST[table]]
    return [{"id": number, **{name: column[at] for name, column in values.items()}} for at, number in enumerate(ids)]


def _asked(name: str, asked: str, table: str, wanted: Rows, **more: Any) -> Question:
    return Question(name, asked, table, tuple(wanted[0]), wanted, **more)


def _left(table: str) -> Rows:
    return [row for row in _of(table, "text") if row["id"] != GONE]


def _positions(table: str) -> Rows:
    """Where the records of a table stand in the topic."""
    order = [name for name, rows in FIRST.items() for _ in rows] + ["dead_letters"] * len(BROKEN)
    order += [name for name, rows in SECOND.items() for _ in rows]
    return [
        {"offset": at, "topic": TOPIC, "partition": 0, "index": 0} for at, name in enumerate(order) if name == table
    ]


def _coordinates(rows: Rows) -> Rows:
    """But for the mark of the log, which is this broker's; each store has a topic of its own."""
    sources = [{key: value for key, value in row["_source"].items() if key != "log"} for row in rows]
    return [{**each, "topic": plain(_text(each["topic"])).partition("_")[0]} for each in sources]


def _but_for_null(rows: Rows) -> Rows:
    return [row for row in rows if row["id"] != NULLS]


def _null_alone(rows: Rows) -> Rows:
    return [row for row in rows if row["id"] == NULLS]


def _with_headers(rows: Rows) -> Rows:
    """Whether none are null or an empty list is another question."""
    return [{**row, "headers": row["headers"] or []} for row in rows]


def _totals(rows: Rows) -> Rows:
    """Of all batches, whatever their number."""
    found: Counter[str] = Counter()
    for row in rows:
        if plain(_text(row["kind"])) == "batch":
            for part in row["partitions"]:
                found.update({name: part[name] for name in ("received", "landed", "dead")})
            found.update({reason: count for reason, count in (row["reasons"] or {}).items() if count})
    return [dict(found)]


RECORDS = sum(map(len, (*FIRST.values(), *SECOND.values(), BROKEN)))
EVENT_TIMES = {row["id"]: dt.datetime.fromtimestamp(row["ts_ms"] / 1000, UTC) for row in FIRST["layouts"]}

QUESTIONS: tuple[Question, ...] = (
    _asked(
        "values", "numbers, booleans, text", "plain", _of("plain", "flag", "small", "word", "ratio", "exact", "text")
    ),
    _asked(
        "decimals",
        "decimals, of 38 digits too",
        "plain",
        _made(
            "plain",
            price=[Decimal("1234567.89"), Decimal("-0.01"), None],
            fine=[Decimal("0.000000000000000001"), Decimal("-1.5"), None],
            huge=[Decimal(2**64 - 1), Decimal(0), None],
        ),
    ),
    _asked(
        "times",
        "times with a zone, to the microsecond; dates",
        "plain",
        _made(
            "plain",
            at=[_at("2024-05-06T01:38:09.123456+00:00"), _at("1969-12-31T23:59:59.999999+00:00"), None],
            day=[dt.date(2024, 2, 29), dt.date(1969, 12, 31), None],
        ),
    ),
    _asked(
        "far",
        "times and dates of the years 1 to 9999",
        "far",
        _made(
            "far",
            at=[_at(f"{row['at'].removesuffix('Z')}+00:00") for row in FIRST["far"]],
            day=[dt.date.fromisoformat(row["day"]) for row in FIRST["far"]],
        ),
    ),
    _asked("bytes", "bytes", "plain", _made("plain", blob=[BYTES, b"", None])),
    _asked(
        "nested",
        "structs, lists and maps in one another",
        "nested",
        _but_for_null(_of("nested", "place", "readings", "grid", "counts")),
        seen=_but_for_null,
    ),
    _asked(
        "nulls",
        "structs, lists and maps that are null",
        "nested",
        _null_alone(_of("nested", "place", "readings", "grid", "counts")),
        seen=_null_alone,
    ),
    _asked(
        "names",
        "reserved words and other scripts as names",
        "order",
        [{"id": 1, "select": 2, "Größe_in_cm": 3, "a_b": 4, "_1st": 5, "it": {"first name": "x", "a-b": 6, "Öl": 7}}],
    ),
    _asked(
        "later",
        "columns and fields added later, in rows from before and after",
        "later",
        [
            {"id": 1, "item": {"id": 10, "size": None}, "tags": [{"key": "a", "value": None}], "note": None},
            {"id": 2, "item": {"id": 20, "size": 1.5}, "tags": [{"key": "b", "value": 2}], "note": "new"},
        ],
    ),
    _asked(
        "widened",
        "columns that were widened, in rows from before and after",
        "widened",
        [
            {"id": 1, "number": 2**31 - 1, "share": 0.5, "price": Decimal("1234567.89")},
            {"id": 2, "number": 2**40, "share": 0.1, "price": Decimal("1234567890123.45")},
        ],
    ),
    _asked(
        "layouts",
        "partitions by month, bucket, truncate, value and null",
        "layouts",
        [{**row, "event_time": EVENT_TIMES[row["id"]]} for row in _of("layouts", "site")],
    ),
    _asked(
        "pruned",
        "one day of hidden partitions, the files of the others being gone",
        "pruned",
        [{"id": row["id"], "event_time": KEPT} for row in FIRST["pruned"] if DAYS[row["id"] % 3] == KEPT],
        day=Day(KEPT.replace(hour=0)),
    ),
    _asked(
        "renamed",
        "what was rescued: in a column renamed since, and in a new one of the old name",
        "renamed",
        [
            {"id": 1, "aside": '{"color":"red"}', "_rescued": None},
            {"id": 2, "aside": None, "_rescued": None},
            {"id": 3, "aside": None, "_rescued": '{"color":"blue"}'},
        ],
    ),
    _asked(
        "promoted",
        "rescued fields that were promoted to columns",
        "promoted",
        [
            {**row, "_rescued": None, "seen": row["seen"] and _at(row["seen"])}
            for row in _of("promoted", "color", "seen", "spot")
        ],
    ),
    _asked(
        "copied",
        "rows deleted by Spark between two batches, copy-on-write",
        "deleted_by_copy",
        _left("deleted_by_copy"),
    ),
    _asked(
        "marked",
        "the same, merge-on-read: position deletes",
        "deleted_by_position",
        _left("deleted_by_position"),
    ),
    _asked(
        "third",
        "a table of format version 3 that others have made",
        "third",
        [{**row, "at": row["at"] and _at(row["at"])} for row in (THEIRS, *_of("third", "at", "place", "note"))],
    ),
    _asked(
        "vectors",
        "rows deleted by Spark from one, merge-on-read: deletion vectors",
        "deleted_by_vector",
        [{"id": 0, "text": "theirs"}, *_left("deleted_by_vector")],
    ),
    _asked(
        "dead",
        "dead letters, to the byte",
        "dead_letters",
        [
            {
                "reason": reason,
                "timestamp": dt.datetime.fromtimestamp(MADE / 1000, UTC),
                "key": key,
                "value": value,
                "headers": [{"key": name, "value": held} for name, held in headers],
            }
            for key, value, headers, reason in BROKEN
        ],
        seen=_with_headers,
    ),
    Question(
        "coordinates",
        "coordinates of each row",
        "later",
        ("_source",),
        _positions("later"),
        seen=_coordinates,
    ),
    Question(
        "record",
        "the batch log",
        "lakehouse_batches",
        ("kind", "partitions", "reasons"),
        [
            {
                "received": RECORDS,
                "landed": RECORDS - len(BROKEN),
                "dead": len(BROKEN),
                **{reason: 1 for *_, reason in BROKEN},
            }
        ],
        seen=_totals,
    ),
)
