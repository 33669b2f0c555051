"""What a panel is, and the words of its queries.

A panel has a title, a unit and queries, each with its legend. `@` in a query stands for the chosen pipelines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STREAM, TABLE = "{{lakehouse_stream}}", "{{lakehouse_table}}"

Query = tuple[str, str]
"""A query and the legend of its series."""


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # in Grafana's spelling
    queries: Sequence[Query]
    kind: str = "timeseries"  # or stat, bargauge, state-timeline
    width: int = 8
    says: str = ""  # the description that Grafana shows beside the title
    limits: Sequence[tuple[float, str]] = ()  # the value from which a colour applies
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]


# -- words of the queries -----------------------------------------------------------------------------------


def rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def increase(series: str, over: str = "$__rate_interval") -> str:
    return f"increase({series}[{over}])"


def total(by: str, query: str) -> Query:
    return f"sum by ({by}) ({query})", f"{{{{{by}}}}}"


def each(query: str, legend: str = STREAM) -> Query:
    return query, legend


def ratio(of: str, to: str) -> str:
    return f"{of} / ({to} > 0)"


def records(outcome: str) -> str:
    return f'lakehouse_records_total{{@,lakehouse_outcome="{outcome}"}}'


def quantiles(metric: str, by: str, *shares: float) -> list[Query]:
    """The legend names the share only where there are several."""
    return [
        (
            f"histogram_quantile({share}, sum by ({by}, le) ({rate(f'{metric}_bucket{{@}}')}))",
            f"{{{{{by}}}}}" + (f" p{share * 100:g}" if len(shares) > 1 else ""),
        )
        for share in shares
    ]


# -- the panels ---------------------------------------------------------------------------------------------


def stat(title: str, unit: str, query: str, *limits: tuple[float, str], says: str = "") -> Panel:
    """One number, with the values from which each colour applies."""
    return Panel(title, unit, [(query, "")], "stat", 4, says, limits)


def lines(title: str, unit: str, *queries: Query, says: str = "", width: int = 8) -> Panel:
    return Panel(title, unit, queries, width=width, says=says)


def heaps(title: str, unit: str, *queries: Query, says: str = "", width: int = 8) -> Panel:
    return Panel(title, unit, queries, width=width, says=says, stacked=True)
