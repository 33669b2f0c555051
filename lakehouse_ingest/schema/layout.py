"""The layout of a table: its partitions, its sort order, and how its files are written."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from catalog import Partition, Sort, TableState, same_partitions
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.schema.columns import EVENT_TIME
from lakehouse_ingest.settings import TableSettings

TIME_PARTS = {"year": "yyyy", "month": "MM", "day": "dd", "hour": "HH"}  # as in the directories of Hive tables


@dataclass(frozen=True)
class FileOptions:
    """How the data files of one table are written."""

    codec: str = "zstd"
    target_size: int = 128 * 2**20

    @classmethod
    def of(cls, settings: TableSettings) -> "FileOptions":
        return cls("uncompressed" if settings.codec == "none" else settings.codec, settings.target_file_size)

    def properties(self) -> dict[str, str]:
        """Properties of the table, so that other writers, such as a compaction, do the same."""
        return {
            "write.parquet.compression-codec": self.codec,
            "write.target-file-size-bytes": str(self.target_size),
            "write.distribution-mode": "none",  # a shuffle in each batch costs more than a few more files
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "20",
            # If another pipeline commits all the time, Iceberg's four attempts are too few.
            "commit.retry.num-retries": "20",
            "commit.retry.max-wait-ms": "2000",
        }


def check_layout_names(table: str, settings: TableSettings, names: Collection[str]) -> None:
    for setting, wanted in (("partition_by", partitions_of(settings)), ("sort_by", map(Sort.parse, settings.sort_by))):
        for each in wanted:
            if each.column not in names:
                raise SettingsRefused(
                    f"`{setting}` names {each.column}, which is not a column of {table};"
                    f" there are {', '.join(sorted(names)[:20])}"
                )


def partitions_of(settings: TableSettings) -> tuple[Partition, ...]:
    """The partitions. If year, month, day and hour are named, the finest of them is the hidden partition for all."""
    parts = derived_of(settings) or _time_parts(settings)
    finest = {} if settings.hive_directories or not parts else {parts[0]: f"{parts[-1]}({EVENT_TIME})"}
    left_out = () if settings.hive_directories else parts[1:]
    try:
        return tuple(Partition.parse(finest.get(each, each)) for each in settings.partition_by if each not in left_out)
    except ValueError as refusal:
        raise SettingsRefused(f"`partition_by` can't be understood: {refusal}") from None


def partition_names(settings: TableSettings) -> frozenset[str]:
    """The names that no column can have. A partition by a column's own value shares the column's name, and may."""
    return frozenset(each.called for each in partitions_of(settings) if each.called != each.column)


def truncated(partitions: Iterable[Partition]) -> tuple[tuple[str, int], ...]:
    """The columns that partitions truncate, and to which width."""
    found = ((each.column, re.fullmatch(r"truncate\[(\d+)\]", each.transform)) for each in partitions)
    return tuple((column, int(width[1])) for column, width in found if width)


def derived_of(settings: TableSettings) -> tuple[str, ...]:
    """The columns that hold parts of the event time, if the table has directories like a Hive table."""
    return _time_parts(settings) if settings.hive_directories else ()


def _time_parts(settings: TableSettings) -> tuple[str, ...]:
    found = tuple(each for each in settings.partition_by if each in TIME_PARTS)
    if found != (*TIME_PARTS,)[: len(found)]:
        raise SettingsRefused(
            f"`partition_by` has {', '.join(found)}: of the event time it takes year, month, day, hour from the first"
            f" on, in this order; or write {found[-1]}({EVENT_TIME})"
        )
    return found


def lies_otherwise(state: TableState, settings: TableSettings) -> bool:
    """Whether the table is partitioned differently from what the settings say.

    Raises, before anything is written, unless the settings allow to change the partitions.
    """
    wanted, found = partitions_of(settings), state.partitions
    if same_partitions(found, wanted):
        return False
    if settings.partition_changes == "refuse":
        raise TableChanged(
            f"the table {state.name} is partitioned by [{', '.join(map(str, found))}],"
            f" the settings say [{', '.join(map(str, wanted))}]: change `partition_by`, or name another table"
        )
    return True
