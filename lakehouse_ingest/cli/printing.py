"""What several verbs print alike."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.operations.verify.findings import Finding, Kind

SHOWN = 3  # snapshots of a finding; the others are in the JSON


def listed(findings: Sequence[Finding]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in findings:
        style = "yellow" if each.kind is Kind.UNKNOWN else "red"
        table.add_row(Text(each.kind, style=style), Text(f"{each.says}{_snapshots(each)}"))
    return table


def _snapshots(finding: Finding) -> str:
    if not finding.snapshots:
        return ""
    shown = ", ".join(map(str, finding.snapshots[:SHOWN]))
    more = len(finding.snapshots) - SHOWN
    return f" [snapshots {shown}{f' and {more} more' if more > 0 else ''}]"
