"""The only reader of the settings file, the environment and the command line: the later of them wins.

Each layer is kept with the place that every value came from. A refusal names that place, and so does
`lakehouse-ingest settings --config`.

pydantic-settings is not used. Its sources hand on plain dictionaries, so the line of the file, the variable and the
flag would be lost. It looks for the variables of known fields, so a misspelled section in a variable would pass
unnoticed. Its merge replaces lists as a whole, so --table could not reach into the only table of a file. What
is left for it to do is shorter by hand.
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import line_numbers
from lakehouse_ingest.settings.line_numbers import Where
from lakehouse_ingest.settings.models import Settings
from lakehouse_ingest.settings.refusal import sentence

PREFIX = "LAKEHOUSE_INGEST_"
FILE_VARIABLE = f"{PREFIX}CONFIG"
# Read elsewhere, under the same prefix: where jars come from, and whether code that settings name is run.
OTHER_VARIABLES = frozenset({FILE_VARIABLE, *(f"{PREFIX}{name}" for name in ("JARS", "JARS_MIRROR", "ALLOW_CODE"))})

# Kubernetes sets these in every pod of a namespace with a Service of our name.
KUBERNETES = re.compile(r"(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\w+)")

# The flags of `run`, and the setting of each.
FLAGS: Mapping[str, Where] = {
    "--name": ("name",),
    "--topics": ("streams", 0, "topics"),
    "--brokers": ("source", "brokers"),
    "--catalog-uri": ("catalog", "uri"),
    "--warehouse": ("catalog", "path"),
    "--namespace": ("catalog", "namespace"),
    "--table": ("streams", 0, "tables", 0, "table"),
    "--event-time": ("streams", 0, "tables", 0, "event_time"),
    "--every": ("streams", 0, "every"),
    "--start": ("source", "start"),
    "--seek": ("source", "seek"),
}
# Variables that other systems read, and our setting for each.
FOREIGN: Mapping[str, str] = {
    "KAFKA_BROKERS": "source.brokers",
    "KAFKA_BOOTSTRAP_SERVERS": "source.brokers",
    "KAFKA_DELTA_INGEST_CERT": "source.security.certificate",
    "KAFKA_DELTA_INGEST_KEY": "source.security.key",
    "CONSUMER_GROUP": "name",
    "LOGLEVEL": "log.level",
    "BATCH_SIZE": "streams.max_records",
    "COMMIT_INTERVAL": "streams.every",
    "HIVE_COLUMNS": "streams.tables.partition_by",
    "TIMESTAMP_COLUMN": "streams.tables.event_time",
    "CATALOG_URL": "catalog.uri",
    "CATALOG_AUTH_TOKEN": "catalog.token",
    "CATALOG_NAMESPACE": "catalog.namespace",
}

FREE = ("options", "properties", "headers", "hints")  # sections whose keys belong to others
LONGEST_NAME, HASH_DIGITS = 64, 8
SHOWN = 40  # characters of a file's name

Tree = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """What the file, the environment or the command line sets, and where."""

    values: Tree = field(default_factory=dict)
    origin: Callable[[Where], str] = lambda _: ""


@dataclass(frozen=True)
class Loaded:
    """Settings, and where each of their values came from."""

    settings: Settings
    layers: tuple[Layer, ...]  # the command line first

    def origin_of(self, where: Where) -> str:
        """The flag, the variable, or the file with its line; empty for a default."""
        return next((layer.origin(where) for layer in self.layers if _holds(layer.values, where)), "")

    def explained(self, sentence: str) -> str:
        """A sentence that names a setting, as `catalog.uri`, with the place that its value came from."""

        def beside(found: re.Match[str]) -> str:
            there = self._origin_of_name(found[1])
            return f"{found[0]} ({there})" if there else found[0]

        return re.sub(r"`([\w.-]+)`", beside, sentence, count=1)

    def _origin_of_name(self, name: str) -> str:
        """The place of the first setting with this name; the numbers of stream and table may be left out."""
        numbered = any(part.isdigit() for part in name.split("."))
        for layer in self.layers:
            for where in sorted(_places(layer.values), key=len):
                words = [str(key) for key in where if numbered or isinstance(key, str)]
                left = ".".join(words).removesuffix(name)
                if ".".join(words).endswith(name) and {*left.split(".")} <= {"", "streams", "tables"}:
                    return layer.origin(where)
        return ""


def _places(tree: Any, where: Where = ()) -> Iterator[Where]:
    match tree:
        case Mapping():
            inner: Iterable[tuple[Any, Any]] = tree.items()
        case list() | tuple():
            inner = enumerate(tree)
        case _:
            return
    for key, value in inner:
        yield (*where, key)
        yield from _places(value, (*where, key))


def load_settings(
    path: Path | str | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from a file, the environment and `given`, a tree of values that takes precedence over both."""
    return load(Path(path) if path else None, Layer(dict(given or {})), environment).settings


def load(path: Path | None, over: Layer, environment: Mapping[str, str] = os.environ) -> Loaded:
    if path is None and environment.get(FILE_VARIABLE):
        path = Path(environment[FILE_VARIABLE])
    layers = (over, from_environment(environment), from_file(path) if path else Layer())
    merged: Tree = {}
    for layer in reversed(layers):
        merged = _merge(merged, layer.values)
    _name_by_topic(merged)
    try:
        return Loaded(Settings.model_validate(merged), layers)
    except ValidationError as refusal:
        raise SettingsRefused(sentence(refusal, merged, lambda where: _origin(where, layers))) from None


def _origin(where: Where, layers: tuple[Layer, ...]) -> str:
    """The place of the value; if it is missing, the place of the nearest section around it."""
    for length in range(len(where), 0, -1):
        for layer in layers:
            if _holds(layer.values, where[:length]):
                return layer.origin(where[:length])
    return ""


def _holds(tree: Any, where: Where) -> bool:
    for key in where:
        match tree:
            case Mapping() if key in tree:
                tree = tree[key]
            case list() if isinstance(key, int) and key < len(tree):
                tree = tree[key]
            case _:
                return False
    return True


# -- the three --------------------------------------------------------------------------------------------


def from_flags(flags: Mapping[str, Any]) -> Layer:
    """The command line. Its flags reach into the first stream and its first table."""
    values: Tree = {}
    for flag, value in flags.items():
        if value is None:
            continue
        place: Any = values
        where = FLAGS[flag]
        for key, following in pairwise(where):
            empty: Any = [{}] if isinstance(following, int) else {}
            place = place[key] if isinstance(key, int) else place.setdefault(key, empty)
        place[where[-1]] = value
    by_place = {where: flag for flag, where in FLAGS.items()}
    return Layer(values, lambda where: by_place.get(where, "command line"))


def from_environment(environment: Mapping[str, str]) -> Layer:
    """`LAKEHOUSE_INGEST_CATALOG__URI` stands for `catalog.uri`; lists and mappings are written as YAML."""
    values: Tree = {}
    # Shorter ones first: LAKEHOUSE_INGEST_CATALOG__URI changes what LAKEHOUSE_INGEST_CATALOG={…} has set.
    for variable in sorted(set(environment) - OTHER_VARIABLES):
        if variable.startswith(PREFIX) and not KUBERNETES.fullmatch(variable.removeprefix(PREFIX)):
            *parents, leaf = _parts(variable.removeprefix(PREFIX))
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise SettingsRefused(
                        f"{variable} sets a key within `{parent}`, but another variable gives `{parent}` a plain value;"
                        " remove one of the two variables"
                    )
            place[leaf] = _value(environment[variable])

    def origin(where: Where) -> str:
        whole, *shorter = (f"{PREFIX}{'__'.join(map(str, where[:length]))}" for length in range(len(where), 0, -1))
        spelled = {name.upper(): name for name in sorted(environment)}  # the keys of others keep their case
        found = (spelled[name.upper()] for name in (whole, *shorter) if name.upper() in spelled)
        within = (name for key, name in spelled.items() if key.startswith(f"{whole.upper()}__"))
        return next(found, None) or next(within, "environment")

    return Layer(values, origin)


def from_file(path: Path) -> Layer:
    readers: dict[str, Any] = {".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    if path.suffix not in readers:
        raise SettingsRefused(f"the settings file {path} should end in .toml, .yaml or .yml")
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = readers[path.suffix](text)
        at = line_numbers.of_toml(text) if path.suffix == ".toml" else line_numbers.of_yaml(text)
    except OSError as failure:
        raise SettingsRefused(f"the settings file {path} can't be read: {failure.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        raise SettingsRefused(f"the settings file {path} is not well formed: {_what_failed(failure)}") from None
    if not isinstance(found, dict | None):
        raise SettingsRefused(f"the settings file {path} should hold keys and values at its top level")

    def origin(where: Where) -> str:
        number = next((at[where[:length]] for length in range(len(where), 0, -1) if where[:length] in at), None)
        return f"{path.name[-SHOWN:]} line {number}" if number else path.name[-SHOWN:]

    return Layer(cast("Tree", found or {}), origin)


def foreign(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables that are set, and that other systems read instead of us; each with our setting."""
    return {name: setting for name, setting in FOREIGN.items() if name in environment}


def _parts(name: str) -> list[str]:
    """Our keys are in lower case; keys that belong to others keep their case."""
    *parents, leaf = name.split("__")
    parents = [parent.lower() for parent in parents]
    return [*parents, leaf if parents and parents[-1] in FREE else leaf.lower()]


def _value(text: str) -> Any:
    # Only a text that looks like a list or a mapping is parsed: a token of digits stays text.
    if text[:1] in "[{":
        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            return text
    return text


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        match merged.get(key), value:
            case Mapping() as below, Mapping():
                merged[key] = _merge(below, value)
            case [Mapping() as below], [Mapping() as above] if key in ("streams", "tables"):  # the only ones
                merged[key] = [_merge(below, above)]
            case Mapping(), [Mapping()] if key in ("streams", "tables"):
                raise SettingsRefused(
                    f"`{key}` should be a list in the settings file: write [[{key}]], or [[streams.{key}]]"
                )
            case [_, _, *_], [Mapping()] if key in ("streams", "tables"):
                raise SettingsRefused(
                    f"the settings have several `{key}`, so a flag or variable can't say which one it means;"
                    " set it in the file"
                )
            case _:
                merged[key] = value
    return merged


def _name_by_topic(merged: dict[str, Any]) -> None:
    match merged:
        case {"name": _}:
            return
        case {"streams": [{"topics": [str(topic)]}]}:
            merged["name"] = _name_of(topic)


def _name_of(topic: str) -> str:
    """The topic's name if it is a valid one; otherwise with a hash, so that two topics never share a ledger."""
    plain = re.sub(r"[^a-z0-9_-]", "-", topic.lower()).lstrip("_-")[:LONGEST_NAME]
    if plain == topic:
        return plain
    digest = hashlib.sha256(topic.encode()).hexdigest()[:HASH_DIGITS]
    return "-".join(filter(None, (plain[: LONGEST_NAME - HASH_DIGITS - 1], digest)))


def _what_failed(failure: Exception) -> str:
    """The reason without the text of the line, which may hold a secret."""
    if isinstance(failure, yaml.MarkedYAMLError) and failure.problem and failure.problem_mark:
        problem = re.sub(r"(?<=[\"'])[^\"'<>]{2,}(?=[\"'])", "…", failure.problem)
        return f"{problem} (at line {failure.problem_mark.line + 1}, column {failure.problem_mark.column + 1})"
    if isinstance(failure, UnicodeDecodeError):
        return f"byte {failure.start} is not UTF-8"
    return " ".join(str(failure).split())[:150]
