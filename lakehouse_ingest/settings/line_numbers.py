"""The line of each key in a settings file. TOML's parser does not report it, YAML's does."""

import re
from collections.abc import Iterator

import yaml

Where = tuple[str | int, ...]

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(?P<open>\[\[?)\s*(?P<key>{_KEY})\s*\]")
_VALUE = re.compile(rf"\s*(?P<key>{_KEY})\s*=")


def of_toml(text: str) -> dict[Where, int]:
    """Sections, and keys at the beginning of a line. A key within a line counts as part of the key before it."""
    found: dict[Where, int] = {}
    counts: dict[Where, int] = {}  # of the elements of each [[array]]
    section: Where = ()
    within = ""  # the quotes of a multi-line text that is still open
    for number, line in enumerate(text.split("\n"), 1):
        inside, within = within, _open_after(line, within)
        if inside:
            continue
        if header := _HEADER.match(line):
            section = _within(_parts(header["key"]), counts)
            if header["open"] == "[[":
                counts[section] = counts.get(section, -1) + 1
                found.setdefault(section, number)
                section = (*section, counts[section])
            found.setdefault(section, number)
        elif value := _VALUE.match(line):
            found.setdefault((*section, *_parts(value["key"])), number)
    return found


def _open_after(line: str, within: str) -> str:
    for quotes in re.findall(r'"""|\'\'\'', line):
        if not within:
            within = quotes
        elif within == quotes:
            within = ""
    return within


def _parts(key: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, key)]


def _within(parts: list[str], counts: dict[Where, int]) -> Where:
    """The path of a header, through the newest element of each array on it."""
    where: Where = ()
    for part in parts:
        if where in counts:
            where = (*where, counts[where])
        where = (*where, part)
    return where


def of_yaml(text: str) -> dict[Where, int]:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return dict(_nodes(root, ())) if root else {}


def _nodes(node: yaml.Node, where: Where) -> Iterator[tuple[Where, int]]:
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                place = (*where, str(key.value))
                yield place, key.start_mark.line + 1
                yield from _nodes(value, place)
        case yaml.SequenceNode():
            for number, value in enumerate(node.value):
                place = (*where, number)
                yield place, value.start_mark.line + 1
                yield from _nodes(value, place)
