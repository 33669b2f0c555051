"""How a single value is written, and what it becomes; a ValueError says what it should be.

pydantic's `ByteSize` is not used for sizes: it takes `true` for one byte and cuts `"1.5"` down to one (2.14), and its
refusals speak of byte strings. The function here is seven lines.
"""

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, PlainValidator, SecretStr, WithJsonSchema

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LONGEST_S = 10.0**9  # the longest wait that the system's timers take
ANY_TOPIC = ""  # in a map of offsets: every topic that it does not name
PEM = "-----BEGIN "

# By topic, the offset of each of its partitions.
Positions = Mapping[str, Mapping[int, int]]
# By topic, the partitions that are read.
Partitions = Mapping[str, tuple[int, ...]]


def seconds(value: object) -> object:
    """`"5s"`, `"250ms"`, `"10m"`, `"1h"`, or a plain number of seconds."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", value)):
        value = float(found[1]) * UNITS[found[2] or "s"]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LONGEST_S:
        return float(value)
    raise ValueError("should be a duration such as 5s, 250ms, 10m or 1h")


def size(value: object) -> object:
    """`"128MiB"`, or a plain number of bytes."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+)\s*(B|KiB|MiB|GiB)?\s*", value)):
        value = int(found[1]) * SIZES[found[2] or "B"]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("should be a size such as 128MiB or 1GiB")


def word(value: str) -> str:
    # It becomes part of branch names, of snapshot properties and of identifiers in SQL.
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", value):
        raise ValueError("should be up to 64 lower-case letters, digits, - and _, and begin with a letter or digit")
    return value


def identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value):
        raise ValueError("should be up to 128 letters, digits and _, and not begin with a digit")
    return value


def host_name(value: str) -> str:
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*\.?", value):
        raise ValueError(f"should be host names without scheme and port, not {value[:60]!r}")
    return value


def dotted(value: str) -> str:
    return ".".join(identifier(part) for part in value.split("."))


def regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as failure:
        raise ValueError(f"should be a regular expression: {failure}") from None
    return value


def type_from(value: str) -> str:
    if not re.fullmatch(r"key|header:.+|field:[^.]+(\.[^.]+)*", value):
        raise ValueError("should be field:path.to.it, header:name or key")
    return value


def template(value: str) -> str:
    identifier(value.replace("{topic}", "x").replace("{type}", "x"))  # the namespace is a setting of the catalog
    return value


def secret(value: object) -> object:
    """The text itself, or the content of a file, `{ file = "…" }`, without the end of its last line."""
    match value:
        case {"file": str(path), **others} if not others:
            return _read(path).rstrip("\r\n")
        case Mapping():
            raise ValueError("should be text, or the file that holds it: { file = … }")
    return value


def pem(value: object) -> object:
    """Certificates or a key: as PEM text, or from the file that holds it."""
    match value:
        case {"file": str(path), **others} if not others:
            found = _read(path)
        case str() if PEM not in value:
            found = _read(value)
        case str() | SecretStr():
            return value
        case _:
            raise ValueError("should be PEM text, or the file that holds it: { file = … }")
    if PEM not in found:
        raise ValueError("should be PEM, and the file holds none")
    return found


def given(properties: Mapping[str, str | None]) -> dict[str, str]:
    """Only the properties that have a value."""
    return {key: value for key, value in properties.items() if value is not None}


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise ValueError(f"names a file that can't be read ({why})") from None


def start(value: object) -> object:
    """Earliest, latest, a time with its zone, or the offsets of the first records to read."""
    match value:
        case "earliest" | "latest":
            return value
        case dt.datetime() as moment:
            found: object = moment
        case str() if value.startswith("{"):
            return positions(value)
        case str():
            try:
                found = dt.datetime.fromisoformat(value)
            except ValueError:
                found = None
        case Mapping():
            return positions(value)
        case _:
            found = None
    if not isinstance(found, dt.datetime) or found.tzinfo is None:
        raise ValueError(
            "should be 'earliest' or 'latest', a time with its zone such as 2026-11-18T00:00:00Z, or offsets such as"
            " { topic = { 0 = 42 } }"
        )
    try:
        return found.astimezone(dt.UTC)
    except OverflowError:
        raise ValueError("should be a time between the years 1 and 9999") from None


def positions(value: object) -> Positions:
    """`{ topic = { 0 = 42 } }`, or `{ 0 = 42 }` for every topic. The command line gives JSON."""
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            value = None
    found: dict[str, dict[int, int]] = {}
    try:
        for key, inner in dict(value).items():  # type: ignore[call-overload]
            of_topic = isinstance(inner, Mapping)
            topic, parts = (str(key), inner) if of_topic else (ANY_TOPIC, {key: inner})
            found.setdefault(topic, {}).update({int(part): int(offset) for part, offset in parts.items()})
    except (TypeError, ValueError):
        found = {ANY_TOPIC: {-1: -1}}
    if any(number < 0 for parts in found.values() for each in parts.items() for number in each):
        raise ValueError("should be offsets by partition, such as { topic = { 0 = 42 } }")
    return found


def chosen_partitions(value: object) -> Partitions:
    """`{ topic = [0, 1] }`. The environment gives JSON."""
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            value = None
    if not isinstance(value, Mapping) or not all(_are_partitions(each) for each in value.values()):
        raise ValueError("should list the partitions of each topic, each partition once, such as { topic = [0, 1] }")
    return {str(topic): tuple(sorted(numbers)) for topic, numbers in value.items()}


def _are_partitions(numbers: object) -> bool:
    if not isinstance(numbers, list | tuple) or not numbers or len(set(map(str, numbers))) < len(numbers):
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in numbers)


# What a person may write, as JSON Schema: an editor judges what stands in the file, not what it becomes.
_FILE = {
    "type": "object",
    "properties": {"file": {"type": "string", "description": "A file that holds the value."}},
    "required": ["file"],
    "additionalProperties": False,
}
_TEXT_OR_FILE = WithJsonSchema({"anyOf": [{"type": "string"}, _FILE]})
_DURATION = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h)?\s*$"}
_BYTES = {"type": "string", "pattern": r"^\s*\d+\s*(B|KiB|MiB|GiB)?\s*$"}
_OFFSETS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_POSITIONS = {"type": "object", "additionalProperties": {"anyOf": [{"type": "integer", "minimum": 0}, _OFFSETS]}}
_PARTITIONS = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "items": {"type": "integer", "minimum": 0},
        "minItems": 1,
        "uniqueItems": True,
    },
}

Seconds = Annotated[
    float, BeforeValidator(seconds), WithJsonSchema({"anyOf": [_DURATION, {"type": "number", "minimum": 0}]})
]
Size = Annotated[int, BeforeValidator(size), WithJsonSchema({"anyOf": [_BYTES, {"type": "integer", "minimum": 1}]})]
Word = Annotated[str, AfterValidator(word)]
Identifier = Annotated[str, AfterValidator(identifier)]
Dotted = Annotated[str, AfterValidator(dotted)]
HostName = Annotated[str, AfterValidator(host_name)]
Regex = Annotated[str, AfterValidator(regex)]
TypeFrom = Annotated[str, AfterValidator(type_from)]
Template = Annotated[str, AfterValidator(template)]
Secret = Annotated[SecretStr, BeforeValidator(secret), _TEXT_OR_FILE]
Pem = Annotated[SecretStr, BeforeValidator(pem), _TEXT_OR_FILE]
Start = Annotated[
    Literal["earliest", "latest"] | dt.datetime | Positions,
    PlainValidator(start),
    WithJsonSchema({"anyOf": [{"enum": ["earliest", "latest"]}, {"type": "string"}, _POSITIONS]}),
]
Seek = Annotated[Positions, PlainValidator(positions), WithJsonSchema(_POSITIONS)]
ChosenPartitions = Annotated[Partitions, PlainValidator(chosen_partitions), WithJsonSchema(_PARTITIONS)]
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
TimeUnit = Literal["auto", "s", "ms", "us", "ns", "iso"]
