"""Metrics as the text that Prometheus asks for: OpenMetrics 1.0 where it is understood, else the older format.

Written from the SDK's own data, so that a pull costs no package and no second count of anything.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from telemetry.prometheus_names import family, prometheus_label, unit_word

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"

Type = Literal["counter", "gauge", "histogram"]
Labels = Sequence[tuple[str, str]]


class Sample(NamedTuple):
    suffix: str
    labels: Labels
    value: float


class Family(NamedTuple):
    name: str
    type: Type
    unit: str
    help: str
    samples: Sequence[Sample]


def accepted(accept: str) -> str:
    """The content type for whoever accepts that."""
    return OPENMETRICS if "application/openmetrics-text" in accept else PLAIN


def text(data: Any, kind: str) -> str:
    """`data`: the SDK's MetricsData, or None where nothing has been measured yet."""
    opened = kind == OPENMETRICS
    lines = [*_target(data, opened=opened)]
    for each in _families(data):
        lines += _lines(each, opened=opened)
    return "\n".join([*lines, *(["# EOF"] if opened else []), ""])


def _families(data: Any) -> Iterator[Family]:
    found: dict[str, Family] = {}
    for metric in _metrics(data):
        made = _family(metric)
        if made is None:
            continue
        before = found.get(made.name)
        # Of two that would have one name and not one type, the second would make the whole text unreadable.
        if before is None:
            found[made.name] = made
        elif before.type == made.type:
            found[made.name] = before._replace(samples=[*before.samples, *made.samples])
    yield from found.values()


def _metrics(data: Any) -> Iterator[Any]:
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _family(metric: Any) -> Family | None:
    points = metric.data.data_points
    if hasattr(metric.data, "is_monotonic"):
        type_: Type = "counter" if metric.data.is_monotonic else "gauge"
        suffix = "_total" if metric.data.is_monotonic else ""
        samples = [Sample(suffix, _labels(point.attributes), point.value) for point in points]
    elif points and hasattr(points[0], "explicit_bounds"):
        type_, samples = "histogram", [sample for point in points for sample in _buckets(point)]
    elif points and hasattr(points[0], "value"):
        type_, samples = "gauge", [Sample("", _labels(point.attributes), point.value) for point in points]
    else:
        return None  # of a kind that the text has no words for
    gauge = type_ == "gauge"
    name = family(metric.name, metric.unit or "", gauge=gauge)
    return Family(name, type_, unit_word(metric.unit or "", gauge=gauge), metric.description or "", samples)


def _buckets(point: Any) -> Iterator[Sample]:
    labels, so_far = _labels(point.attributes), 0
    for bound, count in zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True):
        so_far += count
        yield Sample("_bucket", [*labels, ("le", _number(float(bound)))], so_far)
    yield Sample("_sum", labels, point.sum)
    yield Sample("_count", labels, point.count)


def _labels(attributes: Mapping[str, Any] | None) -> Labels:
    found: dict[str, str] = {}
    for name, value in sorted((attributes or {}).items()):
        label, said = prometheus_label(name), _said(value)
        found[label] = f"{found[label]};{said}" if label in found else said
    return list(found.items())


def _said(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_said, value))
    return str(value)


def _target(data: Any, *, opened: bool) -> Iterator[str]:
    """Who we are, once, and not as labels of every sample."""
    attributes = {key: value for each in (data.resource_metrics if data else ()) for key, value in _resource(each)}
    if attributes:
        name = "target" if opened else "target_info"
        yield f"# TYPE {name} {'info' if opened else 'gauge'}"
        yield f"# HELP {name} Target metadata"
        yield f"target_info{_in_braces(_labels(attributes))} 1"


def _resource(of: Any) -> Iterable[tuple[str, Any]]:
    return dict(of.resource.attributes).items()


def _lines(each: Family, *, opened: bool) -> Iterator[str]:
    name = each.name if opened or each.type != "counter" else f"{each.name}_total"
    yield f"# TYPE {name} {each.type}"
    if opened and each.unit:
        yield f"# UNIT {name} {each.unit}"
    if each.help:
        yield f"# HELP {name} {_escaped(each.help) if opened else _escaped(each.help, quotes=False)}"
    for sample in each.samples:
        yield f"{each.name}{sample.suffix}{_in_braces(sample.labels)} {_number(sample.value)}"


def _in_braces(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(said: str, *, quotes: bool = True) -> str:
    said = said.replace("\\", "\\\\").replace("\n", "\\n")
    return said.replace('"', '\\"') if quotes else said


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
