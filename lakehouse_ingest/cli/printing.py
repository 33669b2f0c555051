"""Parts of the output that several verbs share."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.operations.verify.findings import PROVEN, UNTOLD, Finding, FindingKind, StreamVerdict
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.settings.secret_words import without_login

SHOWN = 3  # snapshots of a finding; the others are in the JSON
UNKNOWN_STREAM = (
    "The catalog knows nothing of it: it has not committed anything yet, or `catalog.namespace` is another."
)


def headline(settings: Settings, uri: str) -> Text:
    where = f"{settings.name}: namespace {settings.catalog.namespace} of {without_login(uri)}"
    return Text(where, style="bold")


def listed(findings: Sequence[Finding]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in findings:
        style = "yellow" if each.kind is FindingKind.UNKNOWN else "red"
        table.add_row(Text(each.kind, style=style), Text(f"{each.says}{_snapshots(each)}"))
    return table


def _snapshots(finding: Finding) -> str:
    if not finding.snapshots:
        return ""
    shown = ", ".join(map(str, finding.snapshots[:SHOWN]))
    more = len(finding.snapshots) - SHOWN
    return f" [snapshots {shown}{f' and {more} more' if more > 0 else ''}]"


def verdict_sentence(verdict: StreamVerdict) -> str:
    """Where the offsets are, and whether each has exactly one place."""
    tables = len([count for count in verdict.tables.values() if count])
    parts = {
        f"in {many(tables, 'table')}": sum(verdict.tables.values()),
        "among the dead letters": verdict.dead,
        "filtered": verdict.filtered,
        "discarded": verdict.discarded,
        "removed on purpose": verdict.removed,
        "offset gaps": verdict.holes,
        "offset gaps by the batch log": verdict.holes_recorded,
        "lost": verdict.lost,
        "unknown": verdict.unknown,
        "too many": verdict.duplicates,
    }
    counts = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count) or "none"
    whole = "; every other one in exactly one place" if verdict.removed else "; every one in exactly one place"
    proven = {PROVEN: whole, UNTOLD: "; the rest in one place each"}.get(verdict.code, "")
    return f"{many(verdict.offsets, 'offset')} of {many(verdict.partitions, 'partition')}: {counts}{proven}"
