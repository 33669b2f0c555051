"""Columns as data brings them: any, and families whose members can all live in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from catalog import Column, TableSpec, TableState

# Each may become the ones behind it.
FAMILIES = (
    ("int", "long"),
    ("float", "double"),
    ("decimal(4,2)", "decimal(9,2)", "decimal(30,2)"),
    ("string",),
    ("boolean",),
    ("timestamptz",),
)
ODD_NAMES = ("a", "A", "b", "a.b", "element", "value", "a.element", "", "größe", 'say "x"')

Shape = Any  # a family, a dict of named shapes, a list with one shape in it, or (key, shape) of a map


def table_of(columns: Sequence[Column], **more: Any) -> TableState:
    """A table of these columns that nobody has ever made."""
    told = {"format_version": 2, "partitions": (), **more}
    return TableState(
        **{
            "name": "n.t",
            "uuid": "u",
            "location": "file:/t",
            "schema_id": 0,
            "columns": tuple(columns),
            "sort": (),
            "properties": {},
            "refs": {},
            "snapshots": {},
            "metadata_location": "file:/m",
            **told,
        }
    )


def spec_of(*columns: Column, **more: Any) -> TableSpec:
    return TableSpec("n.t", columns, **more)


# -- any columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    text: str
    required: bool

    def __str__(self) -> str:
        return f"{'required ' if self.required else ''}{self.text}"


def any_types(*more: str) -> SearchStrategy[str]:
    leaves = st.sampled_from([*(kind for family in FAMILIES for kind in family), "timestamp_ns", "struct<>", *more])
    return st.recursive(leaves, _nested, max_leaves=6)


def _nested(types: SearchStrategy[str]) -> SearchStrategy[str]:
    parts = st.builds(Part, types, st.booleans())
    fields = st.lists(st.tuples(st.sampled_from(ODD_NAMES), parts), max_size=3)
    return st.one_of(
        parts.map("list<{}>".format),
        st.tuples(types, parts).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        fields.map(lambda found: f"struct<{', '.join(f'{in_quotes(name)}: {part}' for name, part in found)}>"),
    )


def in_quotes(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def any_columns() -> SearchStrategy[tuple[Column, ...]]:
    docs, defaults = st.sampled_from([None, "", "why"]), st.sampled_from([None, None, None, 7, 2**40, 2.5, True, "x"])
    return st.lists(
        st.builds(Column, st.sampled_from(ODD_NAMES), any_types(), st.booleans(), docs, defaults),
        min_size=1,
        max_size=4,
    ).map(tuple)


# -- columns that fit together ----------------------------------------------------------------------------


@st.composite
def shapes(draw: DrawFn) -> dict[str, Shape]:
    """What all the data of one table has in common."""
    inner = st.recursive(
        st.sampled_from(FAMILIES),
        lambda kinds: st.one_of(
            kinds.map(lambda kind: [kind]),
            kinds.map(lambda kind: ("string", {"of": kind})),
            st.dictionaries(st.sampled_from("xyz"), kinds, min_size=1, max_size=3),
        ),
        max_leaves=5,
    )
    return draw(st.dictionaries(st.sampled_from("abcde"), inner, min_size=1, max_size=3))


@st.composite
def arrivals(draw: DrawFn) -> list[tuple[Column, ...]]:
    """Several batches of one shape: each with some of its fields, none wider than the shape allows."""
    shape = draw(shapes())
    return [_batch(draw, shape) for _ in range(draw(st.integers(2, 3)))]


def _batch(draw: DrawFn, shape: dict[str, Shape]) -> tuple[Column, ...]:
    return tuple(Column(name, _some(draw, shape[name])) for name in _names(draw, shape))


def _names(draw: DrawFn, shape: dict[str, Shape]) -> list[str]:
    return draw(st.lists(st.sampled_from(sorted(shape)), min_size=1, unique=True))


def _some(draw: DrawFn, shape: Shape) -> str:
    match shape:
        case dict():
            return f"struct<{', '.join(f'{name}: {_some(draw, shape[name])}' for name in _names(draw, shape))}>"
        case [kind] if isinstance(shape, list):
            return f"list<{_some(draw, kind)}>"
        case (str() as key, dict() as value):
            return f"map<{key}, {_some(draw, value)}>"
    leaf: str = draw(st.sampled_from(shape))
    return leaf
