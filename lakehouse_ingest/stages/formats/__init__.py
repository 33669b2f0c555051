"""Formats in Arrow: how a record's bytes become fields.

A format has an exact decoder, which reads one record and explains every fault. It may also have a fast one, which reads
many records at once. The fast one may only say that a record is sound; about all others the exact one decides.

Another package offers a format by an entry point of the group below: a module, or an object of a module. A task loads
it by its name, so it is never pickled. The suite in `lakehouse_ingest.testing.formats` proves it.
"""

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

import pyarrow as pa

from lakehouse_ingest import plugins
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.stages.records import Fault, Tree

FORMATS = {"json": "lakehouse_ingest.stages.formats.json_object"}
GROUP = "lakehouse_ingest.formats"


@runtime_checkable
class Format(Protocol):
    """What the street asks of a format.

    A format that knows only texts says so with an attribute `untyped = True`. Then a text is read as the type that its
    column declares: the text 12 fits a column of integers, and x is a fault there.
    """

    def tree(self, value: bytes | None) -> Tree | Fault:
        """The fields of one record as plain Python values, or why it can't be read. Never raises."""

    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        """The text of one field of each record, for `type_from`. Null if there is none."""


@runtime_checkable
class ColumnarFormat(Format, Protocol):
    """A format with a fast decoder as well."""

    def columns(
        self, values: pa.BinaryArray, columns: Sequence[ColumnPlan], *, drops: bool = False
    ) -> tuple[pa.StructArray, pa.BooleanArray]:
        """The fields of the columns, in the `wire` types, and which records are sound.

        Sound means: the exact decoder and `fitting` would give the same values, and the record holds nothing that the
        columns don't take. With `drops` it may have more fields, which are dropped. The values of other records don't
        matter. Each value has its entry in both results.
        """


def chosen(name: str) -> Format:
    """The format that `streams.format` names."""
    return cast("Format", plugins.load("streams.format", name, FORMATS, GROUP, Format))
