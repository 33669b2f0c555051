"""Formats: how a record's bytes become fields. Each has one file, and one line here. Only the chosen one is imported.

Another package offers a format by an entry point of the group below: a module with the functions of `Format`, or an
object with such methods. The suite in `lakehouse_ingest.testing.formats` proves it.
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
    """A format takes a frame and returns a frame, in Spark's own columns. The record's bytes are `_record.value`."""

    def decode(self, rows: DataFrame, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = ()) -> DataFrame:
        """Returns `_record` unchanged, `_fault`, and `_data`.

        `_data` is a struct of the columns' fields, each in its column's `wire` type. Its value does not matter if there
        is a fault. A fault that is there already stays; a new one has a reason of `records.Reason`. A record with a
        value in a `refused` field gets the fault `no_column`. Without columns `_data` may be anything, because the
        caller wants only the faults.
        """

    def field(self, path: Sequence[str]) -> Column:
        """The text of one field, for `type_from`. A path leads through nested objects. Null if there is none."""

    def seen(self) -> Column:
        """An aggregate over records: their fields and types, as text for `fields_of`; null if there are no fields."""

    def fields_of(self, seen: str | None, rows: DataFrame | None = None) -> list[tuple[str, T.DataType]]:
        """The fields that `seen` describes, each with the narrowest type that takes all its values.

        The type is null if no value was seen. It is variant if values have several kinds, unless a look at `rows` shows
        that nearly all values have one type.
        """

    def usual(self, rows: DataFrame, names: Collection[str]) -> dict[str, T.DataType]:
        """For fields with values of several kinds: the type of nearly all values. Leave out fields without one."""

    def times(self, rows: DataFrame, names: Collection[str]) -> dict[str, str]:
        """The text fields whose values are all dates (`date`), or all times with a zone (`timestamptz`)."""


@runtime_checkable
class Lenient(Protocol):
    """A format that can leave out single values, which a contract needs in order to rescue them."""

    def lenient(self, rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
        """As `decode`, but a value that does not fit its column is null in `_data`, and its record has no fault.

        Instead the fault is in `_misfit`. `_raw` has all fields of the record, as a map of variants.
        """


def chosen(name: str) -> Format:
    """The format that `streams.format` names."""
    return cast("Format", plugins.load("streams.format", name, FORMATS, GROUP, Format))


def infer(form: Format, rows: DataFrame) -> list[tuple[str, T.DataType]]:
    """The fields of these records."""
    return form.fields_of(rows.agg(form.seen()).collect()[0][0], rows)
