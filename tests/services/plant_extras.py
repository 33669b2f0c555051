"""What somebody else's package may bring: a format, `k=v;k=v`, and a source. Tests install it into a folder."""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import DATA, FAULT, RECORD, Reason
from lakehouse_ingest.schema.columns import ColumnPlan, RefusedField
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.faults import faulty
from lakehouse_ingest.stages.sources.kafka import Kafka

STAGE = "decode"
PAIRS = r"^\w+=[^;]*(;\w+=[^;]*)*$"


class Lines:
    """Every field is text; only what a column declares is more."""

    def decode(self, rows: DataFrame, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = ()) -> DataFrame:
        text = _text()
        fault = (
            F.when(F.coalesce(text, F.lit("")) == "", faulty(Reason.EMPTY, F.lit("nothing"), STAGE))
            .when(~F.is_valid_utf8(text), faulty(Reason.NOT_TEXT, F.lit("no UTF-8"), STAGE))
            .when(~text.rlike(PAIRS), faulty(Reason.BROKEN, F.lit("no pairs"), STAGE))
        )
        checks = [
            F.when(
                self.field([column.field]).isNotNull() & _read(column).isNull(),
                faulty(Reason.WRONG_TYPE, F.lit(f"{column.field} is not {column.takes}"), STAGE),
            )
            for column in columns
        ]
        checks += [
            F.when(
                self.field([each.name]).isNotNull(), faulty(Reason.NO_COLUMN, F.lit(f"{each.name}: {each.why}"), STAGE)
            )
            for each in refused
        ]
        data = F.struct(*(_read(column).alias(column.field) for column in columns)) if columns else F.lit(None)
        return rows.select(RECORD, F.coalesce(F.col(FAULT), fault, *checks).alias(FAULT), data.alias(DATA))

    def field(self, path: Sequence[str]) -> Column:
        name, *inner = path
        pattern = rf"(?:^|;)\Q{name}\E=([^;]*)"
        return F.when(F.lit(not inner) & _text().rlike(pattern), F.regexp_extract(_text(), pattern, 1))

    def seen(self) -> Column:
        text = _text()
        names = F.transform(F.split(text, ";"), lambda pair: F.substring_index(pair, "=", 1))
        of_all = F.flatten(F.collect_set(F.when(F.is_valid_utf8(text) & text.rlike(PAIRS), names)))
        return F.nullif(F.array_join(F.array_distinct(of_all), ";"), F.lit(""))

    def fields_of(self, seen: str | None, rows: DataFrame | None = None) -> list[tuple[str, T.DataType]]:  # noqa: ARG002
        return [(name, T.StringType()) for name in sorted(seen.split(";"))] if seen else []

    def usual(self, rows: DataFrame, names: Collection[str]) -> dict[str, T.DataType]:  # noqa: ARG002
        return {}

    def times(self, rows: DataFrame, names: Collection[str]) -> dict[str, str]:  # noqa: ARG002
        return {}


def _text() -> Column:
    # Not once for all: there is no column before there is a Spark.
    return F.col(RECORD)["value"].cast("string")


def _read(column: ColumnPlan) -> Column:
    return LINES.field([column.field]).try_cast(column.wire)


LINES = Lines()


class Plant(Kafka):
    """Brokers whose address is an option."""

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        if "servers" not in settings.options:
            raise SettingsRefused("`source.options` should say with `servers` where the plant is")
        super().__init__(settings.model_copy(update={"brokers": settings.options["servers"], "options": {}}), topics)


class Unfinished:
    """A source that can do nothing yet."""
