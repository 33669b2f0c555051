"""A stream: topics, how their records are read, when they are committed, and the tables that they go to."""

from itertools import combinations
from typing import Literal, Self

from pydantic import Field, model_validator

from lakehouse_ingest.settings.field_types import Regex, Seconds, TypeFrom, Word
from lakehouse_ingest.settings.models.base import SettingsModel
from lakehouse_ingest.settings.models.table import TableSettings


class StreamSettings(SettingsModel):
    """One `[[streams]]` entry."""

    name: Word | None = Field(
        examples=["raw"],
        default=None,
        description="Name of the stream; part of its ledger name. With several streams, all but one need a name.",
    )
    topics: tuple[str, ...] = Field(examples=[["sensors"]], default=(), description="The topics, by name.")
    topic_pattern: Regex | None = Field(
        examples=["sensors-.*"],
        default=None,
        description="Instead of `topics`: a regular expression that matches the whole name of a topic. Topics that are"
        " created later are included.",
    )
    format: str = Field(
        default="json",
        min_length=1,
        description="Format of a record's value: json, or the name of an entry point in the group"
        " lakehouse_ingest.formats.",
    )
    type_from: TypeFrom | None = Field(
        examples=["field:type"],
        default=None,
        description="Where a record says its type: field:path.to.it, header:name, or key. A type has at most 255"
        " characters.",
    )
    keep_types: Regex | None = Field(
        examples=["^(order|payment)$"],
        default=None,
        description="Regular expression that is searched for anywhere in the type. Records of other types are filtered:"
        " counted, but not kept.",
    )
    transform: str | None = Field(
        examples=["celsius"],
        default=None,
        description="A function of yours between the stages decode and shape, from Arrow table to Arrow table: the name"
        " of an entry point in the group lakehouse_ingest.transforms, or module:function with --allow-code.",
    )
    max_tables: int = Field(default=100, gt=0, le=10_000, description="Most tables that this stream writes to.")
    names: Literal["tell_apart", "refuse"] = Field(
        default="tell_apart",
        description="What to do if two topics, types or fields would get the same name. tell_apart: a short hash is"
        " added to the name. refuse: the records become dead-letter records, and a field is treated as with"
        " `max_columns`.",
    )
    on_error: Literal["log", "raise", "ignore"] = Field(
        default="log",
        description="What to do with a record that has a fault. log: write it to the dead-letter table. raise: stop the"
        " stream. ignore: discard and count it.",
    )
    every: Seconds = Field(
        default=5.0,
        description="Commit interval: the longest time between the beginnings of two batches. 0s: as fast as possible.",
    )
    idle: Seconds = Field(
        default=0.0, description="Commit earlier if no new record has arrived for this time. 0s: never."
    )
    max_records: int = Field(
        default=1_000_000,
        gt=0,
        description="Commit earlier if this many records are waiting. A batch never takes more. After a start that"
        " ended without a complete batch, the first batch takes a quarter as many records. Each complete batch lets the"
        " next be four times as large.",
    )
    tables: tuple[TableSettings, ...] = Field(
        (TableSettings(),),
        min_length=1,
        description="Tried in this order. A record that no entry takes becomes a dead-letter record.",
    )

    @property
    def known_as(self) -> str:
        """Its name for people; the ledger name is another one."""
        return self.name or self.topic_pattern or ",".join(self.topics)

    @model_validator(mode="after")
    def _says_which_topics(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("should have either `topics` or a `topic_pattern`")
        return self

    @model_validator(mode="after")
    def _names_its_types(self) -> Self:
        needs_types = [each.table for each in self.tables if each.types or "{type}" in each.table]
        if (needs_types or self.keep_types) and not self.type_from:
            raise ValueError(
                "should set `type_from`, which says where a record holds its type; it is needed for "
                + (f"the table {needs_types[0]}" if needs_types else "`keep_types`")
            )
        named = [each.table for each in self.tables if "{" not in each.table]
        if twice := next((name for name in named if named.count(name) > 1), None):
            raise ValueError(f"should name the table {twice} once, with all of its `topics` and `types`")
        return self

    @model_validator(mode="after")
    def _leads_to_a_table_by_one_entry(self) -> Self:
        """Two entries may share a template as long as they never fill it to the same name."""
        for earlier, later in combinations(self.tables, 2):
            if earlier.table.casefold() == later.table.casefold() and _meet(earlier, later):
                raise ValueError(
                    f"should have one entry for the table {later.table}, with all of its `topics` and `types`; two"
                    " entries take records for it"
                )
        return self


def _meet(earlier: TableSettings, later: TableSettings) -> bool:
    """Whether a record that the earlier entry leaves to the later one may get a table of the earlier entry."""
    # An entry that names none takes all.
    taken = {"{topic}": (earlier.topics, later.topics), "{type}": (earlier.types, later.types)}
    named = [both for each, both in taken.items() if each in later.table]
    others = [both for each, both in taken.items() if each not in later.table]
    alike = all(not first or not second or {*first} & {*second} for first, second in named)
    left = any(first and not (second and {*second} <= {*first}) for first, second in others)
    return alike and left


def told_apart(streams: tuple[StreamSettings, ...]) -> tuple[StreamSettings, ...]:
    # A stream without a name has the pipeline's, so that adding a second stream changes nothing for the first.
    names = [stream.name for stream in streams]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"should have different names, and {twice} is there twice")
    if names.count(None) > 1:
        raise ValueError("should each have a `name`, except one of them")
    known = [stream.known_as for stream in streams]
    if twice := next((name for name in known if known.count(name) > 1), ""):
        raise ValueError(f"should have different names, and {twice} is the `name` of one and the topic of another")
    return streams
