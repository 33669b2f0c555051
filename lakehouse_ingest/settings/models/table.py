"""A table: which records it takes, its columns, how far it follows the data, and how its files are laid out."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from lakehouse_ingest.settings.field_types import Codec, Size, Template, TimeUnit
from lakehouse_ingest.settings.models.base import SettingsModel

Rule = Literal["evolve", "widen", "freeze", "refuse"]


class ColumnSettings(SettingsModel):
    """A declared column."""

    name: str = Field(min_length=1, description="Name of the field and of the column.")
    type: str = Field(
        description="Type, as Iceberg or Arrow spells it: long, UInt16, decimal(10,2), timestamptz, list<string>."
    )
    required: bool = Field(default=False, description="A record without this field becomes a dead-letter record.")


class TableSettings(SettingsModel):
    """One table, or one template for many."""

    topics: tuple[str, ...] = Field(
        default=(), description="Take only records of these topics. Empty: of all topics of the stream."
    )
    types: tuple[str, ...] = Field(default=(), description="Take only records of these types. Empty: of all types.")
    table: Template = Field(
        default="{topic}",
        description="Name of the table. {topic} and {type} are replaced by the topic and the type of the record.",
    )
    columns: tuple[ColumnSettings, ...] = Field(
        default=(), description="Declared columns. Empty: the columns are inferred from the data."
    )
    hints: Mapping[str, str] = Field(
        default={}, description="Types of single fields, { field = type }, where the columns are inferred."
    )
    infer_times: bool = Field(
        default=True,
        description="Infer a date or time column from text, if the text of all records is a date, or a time with its"
        " zone.",
    )
    contract: Rule | None = Field(
        examples=["freeze"],
        default=None,
        description="How far data may change the table. evolve: new fields become columns, and types widen. widen: only"
        " types widen. freeze: nothing changes. refuse: a record that would need a change becomes a dead-letter record."
        " widen and freeze keep in _rescued what has no column. Without it: evolve; with declared `columns`, other"
        " fields are dropped.",
    )
    contracts: Mapping[str, Rule] = Field(
        default={},
        description="The same for single fields and everything below them, by path: { place = freeze }.",
    )
    rescue: bool = Field(
        default=False,
        description="Under evolve, too, keep in _rescued what has no column. Without it such a record becomes a"
        " dead-letter record.",
    )
    max_columns: int = Field(
        default=1_000,
        gt=0,
        le=10_000,
        description="Most columns of the table, those within objects counted. A field beyond them is rescued, or its"
        " record becomes a dead-letter record.",
    )
    max_new: int | None = Field(
        examples=[100],
        default=None,
        gt=0,
        description="Most new columns that one batch may add. A field beyond them is treated as with `max_columns`.",
    )
    max_depth: int = Field(
        default=21,
        gt=0,
        le=21,
        description="Objects and lists that lie deeper than this many levels become text columns with their JSON.",
    )
    event_time: str | None = Field(
        examples=["ts_ms"],
        default=None,
        description="Field that holds the event time. Without it: event_time or ts_ms if the records have such a field,"
        " else the time stamp of the record.",
    )
    event_time_unit: TimeUnit = Field(default="auto", description="Unit of a numeric event time.")
    partition_by: tuple[str, ...] = Field(
        default=("day(event_time)",),
        description="Partitions: column, year(column), month(column), day(column), hour(column), bucket(16, column),"
        " truncate(4, column) or void(column). year, month, day, hour one after the other mean parts of the event time:"
        " one hidden partition.",
    )
    partition_changes: Literal["refuse", "evolve"] = Field(
        default="refuse",
        description="What to do if an existing table is partitioned differently. refuse: the start stops. evolve: new"
        " files follow `partition_by`, and existing files stay as they are.",
    )
    hive_directories: bool = Field(
        default=False,
        description="Write year, month, day, hour of `partition_by` as text columns, so that files lie in folders such"
        " as year=2024/month=01/day=15. Readers then skip files by these columns only, no longer by the event time.",
    )
    sort_by: tuple[str, ...] = Field(
        default=(), description="Sort order of the rows within a file: column, or column desc."
    )
    codec: Codec = Field(default="zstd", description="Compression of the Parquet files.")
    target_file_size: Size = Field(default=128 * 2**20, description="Approximate largest size of a data file.")
    properties: Mapping[str, str] = Field(
        default={}, description="Further Iceberg table properties. They are set when the table is created."
    )

    @model_validator(mode="after")
    def _declared_columns_do_not_follow(self) -> Self:
        if self.columns and self.contract in ("evolve", "widen"):
            raise ValueError(
                f"should not combine the contract {self.contract} with declared `columns`, which allow only freeze or"
                " refuse; to give types to inferred columns use `hints`"
            )
        if self.columns and self.contract is None and (self.contracts or self.rescue):
            raise ValueError(
                "should set `contract` to freeze or refuse: with declared `columns` it says what happens to other"
                " fields"
            )
        return self

    @field_validator("properties")
    @classmethod
    def _can_be_begun(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        if properties.get("format-version", "2") not in ("1", "2"):
            raise ValueError(
                "should have format-version 1 or 2; a table of a later version is supported only if another engine has"
                " created it and written its first row"
            )
        return properties

    @property
    def rules(self) -> set[Rule]:
        """All rules that hold anywhere in the table."""
        return {self.contract or "evolve", *self.contracts.values()}

    def keeps(self, rule: Rule) -> bool:
        """Whether values without a column are rescued."""
        return rule in ("widen", "freeze") or (rule == "evolve" and self.rescue)

    @property
    def rescues(self) -> bool:
        """Whether the table has a rescue column."""
        return any(map(self.keeps, self.rules))
