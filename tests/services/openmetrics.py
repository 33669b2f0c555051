"""A reader of what Prometheus pulls, as strict as OpenMetrics 1.0 is: what a scraper would refuse is an error here.

Written from the specification, and not from what we write; the older text format is read by the same rules where
they are the same.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
VALUE = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|Inf|NaN)"
META = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ({VALUE})")
PAIR = re.compile(rf'({LABEL})="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "info": ("_info",),
}
Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    name: str
    type: str = ""
    unit: str = ""
    help: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)  # by suffix and labels

    def value(self, suffix: str = "", **labels: str) -> float:
        """The sum of all that have these labels."""
        wanted = set(labels.items())
        found = [value for (end, has), value in self.samples.items() if end == suffix and wanted <= has]
        assert found, f"{self.name}{suffix} has no sample with {labels}"
        return sum(found)


def read(text: str, *, opened: bool = True) -> dict[str, Family]:
    """`opened`: OpenMetrics 1.0; else the text format 0.0.4, whose counters are called as their samples are."""
    assert text.endswith("\n"), "the last line has no end"
    lines = text[:-1].split("\n")
    if opened:
        assert lines.pop() == "# EOF", "it does not end with # EOF"
    families: dict[str, Family] = {}
    current: Family | None = None
    for line in lines:
        assert line, "an empty line"
        if line.startswith("#"):
            current = _described(line, families, current)
        else:
            assert current is not None, f"a sample before any metadata: {line}"
            _sampled(line, current, opened=opened)
    for each in families.values():
        _check(each, opened=opened)
    return families


def _described(line: str, families: dict[str, Family], current: Family | None) -> Family:
    found = META.fullmatch(line)
    assert found, f"no line of metadata: {line}"
    what, name, said = found.groups()
    if current is None or current.name != name:
        assert name not in families, f"{name} stands in two places"
        current = families[name] = Family(name)
    assert not current.samples, f"metadata of {name} after its samples"
    assert not getattr(current, what.lower()), f"{name} has two of {what}"
    if what == "HELP":
        assert not re.search(r'\\(?![\\n"])', said), f"an escape that there is not: {said}"
    setattr(current, what.lower(), said)
    return current


def _sampled(line: str, current: Family, *, opened: bool) -> None:
    found = SAMPLE.fullmatch(line)
    assert found, f"no sample: {line}"
    name, inner, value = found.groups()
    pairs = _pairs(inner or "")
    labels = frozenset(pairs.items())
    if opened:
        assert name.startswith(current.name), f"{name} stands among {current.name}"
        suffix = name.removeprefix(current.name)
        assert suffix in SUFFIXES[current.type], f"{name} can't be a sample of a {current.type}"
    else:
        suffix = name.removeprefix(current.name)
        assert suffix in (SUFFIXES["histogram"] if current.type == "histogram" else ("",)), name
    assert (suffix, labels) not in current.samples, f"twice: {line}"
    current.samples[suffix, labels] = _value(value)


def _pairs(inner: str) -> Mapping[str, str]:
    found, at = {}, 0
    while at < len(inner):
        pair = PAIR.match(inner, at)
        assert pair, f"no label: {inner[at:]}"
        assert pair[1] not in found, f"the label {pair[1]} comes twice"
        assert not pair[1].startswith("__"), f"the label {pair[1]} is reserved"
        found[pair[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), pair[2])
        at = pair.end()
    assert not inner.endswith(","), inner
    return found


def _value(said: str) -> float:
    return float(said.replace("Inf", "inf").replace("NaN", "nan"))


def _check(each: Family, *, opened: bool) -> None:
    assert each.type in SUFFIXES, f"{each.name} has no type"
    if each.unit:
        assert each.name.endswith(f"_{each.unit}"), f"the name of {each.name} must end with its unit {each.unit}"
    if each.type == "counter":
        assert opened != each.name.endswith("_total"), each.name
        assert all(value >= 0 for value in each.samples.values())
    if each.type == "histogram":
        _check_buckets(each)


def _check_buckets(each: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (suffix, labels), value in each.samples.items():
        if suffix == "_bucket":
            (bound,) = [said for name, said in labels if name == "le"]
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((_value(bound), value))
    assert series, f"{each.name} has no buckets"
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert _rises(bounds), f"the bounds of {each.name} do not rise"
        assert bounds[-1] == math.inf, f"{each.name} has no last bucket"
        assert list(counts) == sorted(counts), f"the buckets of {each.name} do not add up"
        assert counts[-1] == each.samples["_count", labels]
        assert ("_sum", labels) in each.samples


def _rises(numbers: Iterable[float]) -> bool:
    seen = list(numbers)
    return seen == sorted(set(seen))
