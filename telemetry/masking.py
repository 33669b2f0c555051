"""Secrets don't leave the process: neither in a log line nor in a span.

Three nets, because each has holes: names that look like a secret's, values that somebody registered, and the
usual ways in which a secret stands in a text (`password=…`, `Bearer …`, `://user:…@host`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from threading import Lock
from urllib.parse import quote

HIDDEN = "***"
# Shorter values would blacken every line.
SHORTEST = 4
# A line of a PEM block is a secret too: a traceback or a text log may break the block apart.
SHORTEST_LINE = 16

# The usual words, for callers that hand over no list by `mask_names`.
_WORDS = (
    r"passw(?:or)?d|passphrase|secret|token|credential|authori[sz]ation|cookie|sasl[._-]?jaas"
    r"|(?:api|access|private|account|sas|sse|cryption)[._-]?key|key[._-]?pem"
)


def _in_text(words: str) -> re.Pattern[str]:
    return re.compile(
        rf"""
        (?P<name> [\w.-]*(?:{words})[\w.-]* (?: \s*=\s* | ["']\s*[:=]\s* ) )
            (?: (?P<quote>["']) (?: \\. | (?!(?P=quote)) [^\\] )* (?P=quote) | [^\s,;&)}}\]]+ )
      | (?P<scheme> \b(?:Bearer|Basic)\s+ ) [\w.~+/=-]{{8,}}
      | (?P<user> ://[^\s/:@]* : ) [^\s/@]+ (?=@)
        """,
        re.IGNORECASE | re.VERBOSE,
    )


class _Registry:
    def __init__(self) -> None:
        self._lock = Lock()
        self._known: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.name_words(_WORDS)

    def name_words(self, words: str) -> None:
        self.name, self.in_text = re.compile(words, re.IGNORECASE), _in_text(words)

    def add(self, value: str) -> None:
        with self._lock:
            known = self._known | set(_spellings(value))
            if known and known != self._known:
                longest_first = sorted(known, key=len, reverse=True)
                self.pattern = re.compile("|".join(map(re.escape, longest_first)))
                self._known = known

    def clear(self) -> None:
        with self._lock:
            self._known, self.pattern = frozenset(), None
            self.name_words(_WORDS)


REGISTRY = _Registry()


def _spellings(value: str) -> Iterator[str]:
    value = value.strip()
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    for part in (
        value,
        *(line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith("-----")),
    ):
        if len(part) >= SHORTEST:
            yield from (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
            yield from (repr(part)[1:-1], quote(part, safe=""))


def mask(secret: str) -> None:
    """From now on this value is hidden wherever it turns up."""
    REGISTRY.add(secret)


def mask_names(words: str) -> None:
    """From now on these words, a regular expression, name secrets, instead of the usual ones."""
    REGISTRY.name_words(words)


def secret_name(name: str) -> bool:
    return REGISTRY.name.search(name) is not None


def masked_text(text: str) -> str:
    pattern = REGISTRY.pattern
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    return REGISTRY.in_text.sub(_keep_the_name, text)


def _keep_the_name(found: re.Match[str]) -> str:
    quote = found["quote"] or ""  # a line of JSON stays one
    return (found["name"] or found["scheme"] or found["user"]) + quote + HIDDEN + quote


def masked(value: object, name: str = "") -> object:
    """The same value with its secrets hidden.

    An object becomes text here: rendered later it would be escaped twice, and its secrets not recognised.
    """
    if name and value not in (None, "") and not isinstance(value, bool) and secret_name(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [masked(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return masked_text(_text(value))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return repr(value) if isinstance(value, BaseException) else str(value)
