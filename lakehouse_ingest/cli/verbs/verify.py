"""`lakehouse-ingest verify`: whether every offset is in exactly one place, counted again from the tables."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lakehouse_ingest.cli.printing import UNKNOWN_STREAM, headline, listed, verdict_sentence
from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.operations.verify.findings import PROVEN, UNTOLD, WRONG
from lakehouse_ingest.operations.verify.streams import Verified, of_streams
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables.catalog_address import catalog_at


def verify(settings: Settings, *, jars: Path | None = None, as_json: bool = False) -> int:
    """The exit code. What is wrong goes before what is unknown."""
    with catalog_at(settings, jars) as uri:
        found = of_streams(settings, uri)
    if as_json:
        say(json.dumps([_as_plain(each) for each in found], indent=2))
    else:
        Terminal().print(Group(headline(settings, uri), *(part for each in found for part in _of_stream(each))))
    codes = {each.code for each in found}
    return next((code for code in (WRONG, UNTOLD) if code in codes), PROVEN)


# -- for people -------------------------------------------------------------------------------------------


def _of_stream(found: Verified) -> Iterator[RenderableType]:
    yield Text(f"\nstream {found.name}", style="bold")
    verdict = found.verdict
    if verdict is None:
        yield Text(UNKNOWN_STREAM)
        return
    yield Text(verdict_sentence(verdict), style="green" if verdict.code == PROVEN else "")
    if verdict.adopted:
        yield Text(f"begun where another writer ended, whose rows are not looked at: {verdict.adopted}")
    if verdict.beyond:
        yield Text(f"{many(verdict.beyond, 'row')} of a batch that is not complete yet: looked at for duplicates only")
    for topic, count in verdict.older.items():
        yield Text(f"{many(count, 'row')} of an earlier log of {topic}: looked at for duplicates only")
    if verdict.back:
        yield Text(f"acknowledged as removed, and in a table again: {many(verdict.back, 'row')}")
    if not verdict.findings:
        return
    yield listed(verdict.findings)
    for kind, count in verdict.unlisted.items():
        yield Text(f"and {many(count, 'finding')} more of the kind {kind}")


# -- for machines -----------------------------------------------------------------------------------------


def _as_plain(found: Verified) -> dict[str, Any]:
    verdict = dataclasses.asdict(found.verdict) if found.verdict else {}
    return {"stream": found.name, "known": found.verdict is not None, "code": found.code, **verdict}
