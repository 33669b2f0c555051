"""Every setting, read from the models: its kind, its default and its meaning; and an example file with all of them."""

import json
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from lakehouse_ingest.settings import field_types
from lakehouse_ingest.settings.line_numbers import Where
from lakehouse_ingest.settings.models import Settings
from lakehouse_ingest.settings.secret_words import HIDDEN, without_login

# What a person may write, by the function that reads it.
WRITTEN = {
    field_types.seconds: "duration",
    field_types.size: "size",
    field_types.word: "word",
    field_types.identifier: "name",
    field_types.dotted: "name, dots between",
    field_types.regex: "regular expression",
    field_types.template: "name or template",
    field_types.secret: "secret",
    field_types.pem: "PEM or file",
    field_types.start: "earliest | latest | time | offsets",
    field_types.positions: "offsets",
    field_types.chosen_partitions: "partitions by topic",
}
WIDTH = 110  # of the remarks in an example
PLAIN = {str: "text", int: "number", bool: "true | false", float: "number", Path: "folder", SecretStr: "secret"}


@dataclass(frozen=True)
class Entry:
    """One setting, or a section of them."""

    path: tuple[str, ...]
    description: str = ""
    kind: str = ""
    default: Any = None
    sample: Any = None  # the value in an example
    required: bool = False
    model: type[BaseModel] | None = None  # of a section
    several: bool = False  # of a section: there may be many

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_remark(self) -> bool:
        """Whether it is commented out in an example."""
        return self.default is None and not self.required


def entries(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> Iterator[Entry]:
    """The settings of a section, then the sections in it with theirs: the order that TOML requires."""
    for entry in fields_of(model, path):
        yield entry
        if entry.model:
            yield from entries(entry.model, entry.path)


def fields_of(model: type[BaseModel], path: tuple[str, ...] = ()) -> list[Entry]:
    """The settings of a section, then the sections in it."""
    found = [_entry((*path, name), field) for name, field in model.model_fields.items()]
    return sorted(found, key=lambda entry: entry.model is not None)


def _entry(path: tuple[str, ...], field: FieldInfo) -> Entry:
    annotation = _bare(field.annotation)
    several = get_origin(annotation) is tuple
    inner = get_args(annotation)[0] if several else annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel) and path[-1] != "columns":
        return Entry(path, model=inner, several=several)
    required = field.is_required() or path == ("streams", "topics")
    default = None if required else _plain(field.default, field)
    sample = field.examples[0] if field.examples else default
    return Entry(path, field.description or "", _kind(field), default, sample, required)


def _bare(annotation: Any) -> Any:
    """The type alone: without None, and without the validators."""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation, *_ = (each for each in get_args(annotation) if each is not type(None))
    return _bare(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


def _plain(default: Any, field: FieldInfo) -> Any:
    """The default as a person would write it."""
    kind = _kind(field)
    match default:
        case Path():
            return str(default)
        case tuple():
            return [each for each in default if not isinstance(each, BaseModel)]
        case float() if kind == "duration":
            return _duration(default)
        case int() if kind == "size":
            return _size(default)
    return default


def _duration(seconds: float) -> str:
    unit = "m" if seconds and seconds % 60 == 0 else "s"
    return f"{seconds / field_types.UNITS[unit]:g}{unit}"


def _size(count: int) -> str:
    return next(f"{count // size}{unit}" for unit, size in reversed(field_types.SIZES.items()) if count % size == 0)


def _kind(field: FieldInfo) -> str:
    return _kind_of(field.annotation, field.metadata)


def _kind_of(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a person may write there."""
    if found := next((WRITTEN[each.func] for each in metadata if getattr(each, "func", None) in WRITTEN), None):
        return found
    first, *others = get_args(annotation) or (annotation,)
    match get_origin(annotation):
        case None:
            return PLAIN.get(annotation, "tables")
        case origin if origin is Literal:
            return " | ".join((first, *others))
        case origin if origin in (
            Annotated,
            Union,
            types.UnionType,
        ):  # of a union: the first type; the other one is None
            return _kind_of(first, others if origin is Annotated else ())
        case origin if origin is tuple:
            return f"list of {_kind_of(first)}"
    return "table of texts"


# -- what is in force ---------------------------------------------------------------------------------------


def in_force(settings: BaseModel, where: Where = ()) -> Iterator[tuple[Where, object]]:
    """Each value, with secrets hidden."""
    for name in type(settings).model_fields:
        yield from _values(getattr(settings, name), (*where, name))


def _values(value: object, where: Where) -> Iterator[tuple[Where, object]]:
    match value:
        case BaseModel():
            yield from in_force(value, where)
        case tuple() if value and all(isinstance(each, BaseModel) for each in value):
            for number, each in enumerate(value):
                yield from _values(each, (*where, number))
        case Mapping() if where[-1] in ("options", "properties", "headers"):
            yield where, dict.fromkeys(value, HIDDEN)
        case _:
            yield where, without_login(value)


# -- a file with all of it ----------------------------------------------------------------------------------


HEAD = """\
# Every setting with its default. A setting without a default is commented out, as #key without a space.
"""


def example(form: Literal["toml", "yaml"]) -> str:
    """A file with every setting as it is without a file; a setting without a default is commented out."""
    lines = _toml(Settings, ()) if form == "toml" else _yaml(Settings, ())
    return HEAD + "\n".join([*lines, ""])


def _toml(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for entry in fields_of(model, path):
        if entry.model:
            yield from ("", f"[[{entry.name}]]" if entry.several else f"[{entry.name}]")
            yield from _toml(entry.model, entry.path)
        else:
            yield from _lines(entry, f"{entry.path[-1]} = {as_toml(entry.sample)}")


def _yaml(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for entry in fields_of(model, path):
        if not entry.model:
            yield from _lines(entry, f"{entry.path[-1]}: {json.dumps(entry.sample, ensure_ascii=False)}")
            continue
        yield from ("", f"{entry.path[-1]}:")
        if entry.several:
            yield "-"
        yield from (f"  {line}" if line else "" for line in _yaml(entry.model, entry.path))


def _lines(entry: Entry, text: str) -> Iterator[str]:
    yield from textwrap.wrap(entry.description, WIDTH, initial_indent="# ", subsequent_indent="# ")
    yield f"#{text}" if entry.is_remark else text


def as_toml(value: Any) -> str:
    match value:
        case Mapping():
            inner = ", ".join(f"{json.dumps(key)} = {as_toml(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
