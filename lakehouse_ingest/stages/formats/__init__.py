"""How a record's bytes become fields: one file each, one line here, imported only when chosen.

Another distribution offers its own by an entry point of the group below: a module with the functions of `Format`, or
an object with such methods. `lakehouse_ingest.testing.formats` proves it.
"""

from collections.abc import Collection, Sequence
from typing import Protocol, cast, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from lakehouse_ingest import plugins
from lakehouse_ingest.schema.columns import ColumnPlan, RefusedField

FORMATS = {"json": "lakehouse_ingest.stages.formats.json_object"}
GROUP = "lakehouse_ingest.formats"


@runtime_checkable
class Format(Protocol):
    """Frame in, frame out, in native columns; the record's bytes are `_record.value`."""

    def decode(self, rows: DataFrame, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = ()) -> DataFrame:
        """`_record` as it was; `_fault`, unless there is one already, with a reason of `records.Reason`; and `_data`:
        a struct of the columns' fields, each in its column's `wire` type; beside a fault it means nothing.

        A record with a value in a field that is refused has the fault `no_column`. Without columns `_data` may be
        anything: then only the faults are asked for.
        """

    def field(self, path: Sequence[str]) -> Column:
        """The text of one field, objects within objects; null where there is none. For `type_from`."""

    def seen(self) -> Column:
        """An aggregate over records: their fields and types, as a text for `fields_of`; null where there are none."""

    def fields_of(self, seen: str | None, rows: DataFrame | None = None) -> list[tuple[str, T.DataType]]:
        """Those fields, each with the narrowest type that takes all its values.

        Variant where kinds are mixed, unless `rows`, looked at again, tell a usual one; null where no value was seen.
        """

    def usual(self, rows: DataFrame, names: Collection[str]) -> dict[str, T.DataType]:
        """Of fields of mixed kinds the type that nearly all values have; the others are left out."""

    def times(self, rows: DataFrame, names: Collection[str]) -> dict[str, str]:
        """Of fields of text those whose every value is a `date`, or a time with its zone: `timestamptz`."""


@runtime_checkable
class Lenient(Protocol):
    """A format that can set values aside, as contracts ask for."""

    def lenient(self, rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
        """As `decode`, but that a value which does not fit its column leaves null in `_data`.

        What its fault would have been is in `_misfit`, and in `_raw` are all fields of the record, a map of variants.
        """


def chosen(name: str) -> Format:
    """The one that `streams.format` names."""
    return cast("Format", plugins.load("streams.format", name, FORMATS, GROUP, Format))


def infer(form: Format, rows: DataFrame) -> list[tuple[str, T.DataType]]:
    """The fields of these records."""
    return form.fields_of(rows.agg(form.seen()).collect()[0][0], rows)
