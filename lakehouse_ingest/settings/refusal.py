"""What is wrong with the settings, in one sentence: which one, where it was set, to what, and what it should be."""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from lakehouse_ingest.settings.line_numbers import Where
from lakehouse_ingest.settings.models import Settings
from lakehouse_ingest.settings.secret_keys import is_secret

SHOWN = 40  # characters of a value


def sentence(refusal: ValidationError, merged: Mapping[str, Any], origin: Callable[[Where], str]) -> str:
    # A missing name last: it may only be missing because the topics can't be read.
    problem = min(refusal.errors(), key=lambda each: each["loc"] == ("name",) and each["type"] == "missing")
    where = problem["loc"]
    name = f"`{'.'.join(map(str, where))}`"
    there = origin(where)
    named = f"{name} ({there})" if there else name
    if problem["type"] == "extra_forbidden":
        known = _known_keys(where[:-1])
        near = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        return f"unknown setting {named}; " + (
            f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(known))}"
        )
    if problem["type"] == "missing":
        if where == ("name",) and "streams" in merged:
            return "the setting `name` is missing: with more than one topic the pipeline needs a name of its own"
        if where == ("streams",):
            return "nothing to ingest: name a topic with --topics, or [[streams]] in a settings file"
        return f"the setting {named} is missing"
    # A section that is given as text may be a secret whose variable was cut short.
    is_section = problem["type"].startswith(("model", "dict"))
    shown = "" if is_section or is_secret(name) else _shown(problem["input"])
    return f"the setting {named} {_expectation(problem['msg'])}{shown}"


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
