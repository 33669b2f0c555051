"""Metrics as the text that Prometheus asks for: OpenMetrics where the client accepts it, else the older format.

`prometheus-client` negotiates and writes the text. What stands here is the way from the SDK's data to its families.
OpenTelemetry's own `opentelemetry-exporter-prometheus` was tried for that, and is not used. Its version 0.66b2 is a
beta that works with one minor version of the SDK only, and it fills up labels: a sample of `lakehouse_records_total`
for a table gets an empty `lakehouse_reason` as well.
"""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from opentelemetry.sdk.metrics.export import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricsData,
    Sum,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from telemetry.http_pages import HttpAnswer
from telemetry.prometheus_names import family, prometheus_label, unit_word


class PullReader(InMemoryMetricReader):
    """Collects when it is asked."""

    def scrape(self, accept: str) -> HttpAnswer:
        """`accept`: the header of that name."""
        try:
            encode, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # a header with a version that is none
            encode, kind = choose_encoder("")
        return HttpAnswer(encode(_Collected(self.get_metrics_data())), kind)


class _Collected(Collector):
    def __init__(self, data: MetricsData | None) -> None:
        self._data = data

    def collect(self) -> Iterator[Family]:
        return families(self._data)


def families(data: MetricsData | None) -> Iterator[Family]:
    """None: nothing has been measured yet."""
    found: dict[str, Family] = {}
    for resource in data.resource_metrics if data else ():
        yield _target(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                made = _family(metric)
                # Two metrics may get one name. With two types under it, the whole text would be unreadable.
                if made and found.setdefault(made.name, made).type == made.type and found[made.name] is not made:
                    found[made.name].samples.extend(made.samples)
    yield from found.values()


def _target(attributes: Mapping[str, Any]) -> Family:
    """Who we are: once, and not as labels of every sample."""
    target = Family("target", "Target metadata", "info")
    target.add_sample("target_info", _labels(attributes), 1)
    return target


def _family(metric: Metric) -> Family | None:
    match metric.data:
        case Sum(is_monotonic=True):
            kind = "counter"
        case Sum() | Gauge():
            kind = "gauge"
        case Histogram():
            kind = "histogram"
        case _:
            return None  # the text has no words for other kinds
    gauge, unit = kind == "gauge", metric.unit or ""
    made = Family(family(metric.name, unit, gauge=gauge), metric.description or "", kind, unit_word(unit, gauge=gauge))
    for point in metric.data.data_points:
        labels = _labels(point.attributes)
        if isinstance(point, HistogramDataPoint):
            _add_buckets(made, labels, point)
        else:
            made.add_sample(f"{made.name}_total" if kind == "counter" else made.name, labels, point.value)
    return made


def _add_buckets(made: Family, labels: dict[str, str], point: HistogramDataPoint) -> None:
    so_far = 0
    for bound, count in zip([*point.explicit_bounds, inf], point.bucket_counts, strict=True):
        so_far += count
        made.add_sample(f"{made.name}_bucket", {**labels, "le": "+Inf" if bound == inf else str(float(bound))}, so_far)
    made.add_sample(f"{made.name}_sum", labels, point.sum)
    made.add_sample(f"{made.name}_count", labels, point.count)


def _labels(attributes: Mapping[str, Any] | None) -> dict[str, str]:
    """Attributes that become one label are joined, as OpenTelemetry's rules say."""
    found: dict[str, str] = {}
    for name, value in sorted((attributes or {}).items()):
        label, said = prometheus_label(name), _said(value)
        found[label] = f"{found[label]};{said}" if label in found else said
    return found


def _said(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_said, value))
    return str(value)
