"""A refusal of settings as one sentence: the setting, where it was set, what it should be, and what it is.

Where there are several, an unknown key comes first: a misspelled section is why others are missing. A missing name
comes last: it is often missing only because the topics can't be read.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lakehouse_ingest.settings.line_numbers import Where
from lakehouse_ingest.settings.models import Settings
from lakehouse_ingest.settings.secret_words import is_secret

SHOWN = 40  # characters of a value
# By pydantic's type of error, where its own words are those of a programmer.
EXPECTED = {
    "tuple_type": 'should be a list, such as ["a", "b"]',
    "model_type": "should be a section with settings of its own",
    "dict_type": "should be a table of keys and values",
    "mapping_type": "should be a table of keys and values",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "string_type": "should be text",
}


def sentence(refusal: ValidationError, merged: Mapping[str, Any], origin: Callable[[Where], str]) -> str:
    problem = min(refusal.errors(), key=_rank)
    where, kind = problem["loc"], problem["type"]
    name = ".".join(map(str, where))
    there = origin(where)
    named = f"`{name}` ({there})" if there else f"`{name}`"
    if kind == "extra_forbidden":
        return f"unknown setting {named}; {_instead(where)}"
    if kind == "missing":
        return _missing(where, named, merged)
    # A section that is given as text may be a secret whose variable was cut short.
    is_section = kind.startswith(("model", "dict"))
    shown = "" if is_section or is_secret(name) else _shown(_written(merged, where, problem["input"]))
    expected = EXPECTED.get(kind) or _expectation(problem["msg"])
    return f"the setting {named} {expected}{shown}"


def _rank(problem: ErrorDetails) -> int:
    if problem["type"] == "extra_forbidden":
        return 0
    return 2 if problem["loc"] == ("name",) and problem["type"] == "missing" else 1


def _instead(where: Where) -> str:
    known = _known_keys(where[:-1])
    near = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(known))}"


def _missing(where: Where, named: str, merged: Mapping[str, Any]) -> str:
    if where == ("streams",):
        return "nothing to ingest: name a topic with --topics, or [[streams]] in a settings file"
    if where != ("name",) or "streams" not in merged:
        return f"the setting {named} is missing"
    has_pattern = any(isinstance(each, Mapping) and "topic_pattern" in each for each in merged["streams"])
    many = "a `topic_pattern`" if has_pattern else "more than one topic"
    return f"the setting `name` is missing: with {many} the pipeline needs a name of its own"


def _written(merged: Any, where: Where, read: object) -> object:
    """The value as it was written: what was read may have been changed before it was refused."""
    for key in where:
        match merged:
            case Mapping() if key in merged:
                merged = merged[key]
            case list() | tuple() if isinstance(key, int) and key < len(merged):
                merged = merged[key]
            case _:
                return read
    return merged


def _shown(value: object) -> str:
    # What should be a value and is a list or a mapping, or the other way round, may hold a secret somewhere.
    if isinstance(value, str) and re.search(r"^[\[{]|://|-----BEGIN", value):
        return ""
    return f", not {str(value)[:SHOWN]!r}" if isinstance(value, str | int | float) else ""


def _expectation(message: str) -> str:
    for prefix in ("Value error, ", "Input "):
        message = message.removeprefix(prefix)
    return message[0].lower() + message[1:]


def _known_keys(location: Where) -> list[str]:
    model: Any = Settings
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = [arg for arg in getattr(annotation, "__args__", ()) if hasattr(arg, "model_fields")]
        model = inner[0] if inner else annotation
    return list(model.model_fields)
