"""What somebody else's package may bring: a format, `k=v;k=v`, and a source. Tests install it into a folder."""

import re
from collections.abc import Sequence

import pyarrow as pa

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.records import Fault, Tree
from lakehouse_ingest.stages.sources.kafka.source import Kafka

PAIRS = re.compile(r"\w+=[^;]*(;\w+=[^;]*)*")


class Lines:
    """Every field is text; only what a column declares is more."""

    untyped = True

    def tree(self, value: bytes | None) -> Tree | Fault:
        if not value:
            return _fault(Reason.EMPTY, "nothing")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _fault(Reason.NOT_TEXT, "no UTF-8")
        if not PAIRS.fullmatch(text):
            return _fault(Reason.BROKEN, "no pairs")
        pairs = (pair.partition("=") for pair in text.split(";"))
        return {name: value for name, _, value in pairs}

    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        name, *within = path
        trees = map(self.tree, values.to_pylist())
        found = [tree.get(name) if isinstance(tree, dict) and not within else None for tree in trees]
        return pa.array(found, pa.string())


def _fault(reason: Reason, words: str) -> Fault:
    return Fault(reason, words, "decode", words)


LINES = Lines()


class Plant(Kafka):
    """Brokers whose address is an option."""

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        if "servers" not in settings.options:
            raise SettingsRefused("`source.options` should say with `servers` where the plant is")
        super().__init__(settings.model_copy(update={"brokers": settings.options["servers"], "options": {}}), topics)


class Unfinished:
    """A source that can do nothing yet."""
