"""The reference page of all metrics: each with its unit, its attributes and its name in Prometheus."""

from collections.abc import Iterator, Mapping, Sequence

from telemetry.instruments import ATTRIBUTES, INSTRUMENTS, Instrument, exported
from telemetry.prometheus_names import prometheus_label, prometheus_name


def entries(instruments: Mapping[str, Instrument] = INSTRUMENTS) -> list[dict[str, object]]:
    return [
        {
            "name": it.name,
            "prometheus": prometheus_name(it.name, it.unit, counter=it.kind == "counter", gauge=it.kind == "gauge"),
            "kind": it.kind,
            "unit": it.unit,
            "attributes": {exported(each): list(it.values.get(each, ())) for each in it.attributes},
            "meaning": it.meaning,
        }
        for it in instruments.values()
    ]


def markdown(instruments: Mapping[str, Instrument] = INSTRUMENTS) -> str:
    return "\n".join(
        [
            "# What is measured",
            "",
            *_table(("metric", "kind", "unit", "attributes", "meaning"), map(_row, instruments.values())),
            "",
            "## Attributes",
            "",
            *_table(("attribute", "in Prometheus", "what it is"), _attributes(instruments)),
            "",
        ]
    )


def _row(it: Instrument) -> Sequence[str]:
    prometheus = prometheus_name(it.name, it.unit, counter=it.kind == "counter", gauge=it.kind == "gauge")
    attributes = [
        f"`{exported(each)}`" + (f" ({', '.join(it.values[each])})" if each in it.values else "")
        for each in it.attributes
    ]
    return f"`{it.name}`<br>`{prometheus}`", it.kind, it.unit, ", ".join(attributes), it.meaning


def _attributes(instruments: Mapping[str, Instrument]) -> Iterator[Sequence[str]]:
    used = {each for it in instruments.values() for each in it.attributes}
    for name, meaning in ATTRIBUTES.items():
        if name in used:
            yield f"`{exported(name)}`", f"`{prometheus_label(exported(name))}`", meaning


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |"
