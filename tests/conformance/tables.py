"""What the suites of tables do to a table, and what others do to it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    IntegerType,
    NestedField,
)
from pyiceberg.view.metadata import ViewVersion

from catalog import (
    CatalogClient,
    Column,
    Contract,
    Partition,
    Rule,
    TableSpec,
    TableState,
    apply,
    load,
    plan,
)
from tests.services.catalogs import NAMESPACE

PARTITIONS_EVOLVE = Contract(partitions=Rule.EVOLVE)


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in types.items())


def layout(*fields: str) -> tuple[Partition, ...]:
    return tuple(map(Partition.parse, fields))


TIMED = columns(id="long", ts="timestamptz", day="date", site="string", place="struct<city: string>")


def ids_of(lake: CatalogClient, name: str) -> dict[str, int]:
    schema = lake.pyiceberg.load_table(name).schema()
    return {schema.find_column_name(number) or "": number for number in schema.field_ids}


def step(lake: CatalogClient, name: str, wanted: TableSpec, contract: Contract = PARTITIONS_EVOLVE) -> TableState:
    return apply(lake, name, plan(load(lake, name), wanted, contract))


def meanwhile(monkeypatch: pytest.MonkeyPatch, lake: CatalogClient, act: Callable[[], object]) -> None:
    """Once, between our look at the table and our commit, somebody else does something."""
    real = lake.pyiceberg.commit_table
    done: list[int] = []

    def commit(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(1)
            act()
        return real(*args, **more)

    monkeypatch.setattr(lake.pyiceberg, "commit_table", commit)


def append(lake: CatalogClient, name: str, row: Mapping[str, object]) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.Table.from_pylist([dict(row)], schema=table.schema().as_arrow()))


def rows_of(lake: CatalogClient, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.pyiceberg.load_table(name).scan().to_arrow().to_pylist()
    return found


def a_view(lake: CatalogClient, name: str) -> None:
    select = [{"type": "sql", "sql": "select 1 as a", "dialect": "spark"}]
    version = ViewVersion.model_validate(
        {"schema-id": 0, "representations": select, "default-namespace": [NAMESPACE], "summary": {"engine-name": "x"}}
    )
    field = NestedField(field_id=1, name="a", field_type=IntegerType(), required=False)
    with lake.calling("making a view"):
        lake.pyiceberg.create_view(name, Schema(field), version)


def delete_by_value(lake: CatalogClient, name: str, value: int) -> None:
    """What pyiceberg can't write: a file that says, all rows with this id are deleted."""
    table = lake.pyiceberg.load_table(name)
    field_id = table.schema().find_field("id").field_id
    named = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field_id)})
    rows = pa.table([pa.array([value])], schema=pa.schema([named]))
    _delete(table, rows, content=DataFileContent.EQUALITY_DELETES, equality_ids=[field_id])


def delete_by_position(lake: CatalogClient, name: str, position: int) -> None:
    """Likewise a file that says, this row of the table's only file is deleted."""
    table = lake.table(name)
    (task,) = table.scan().plan_files()
    rows = pa.table({"file_path": [task.file.file_path], "pos": pa.array([position], pa.int64())})
    _delete(table, rows, content=DataFileContent.POSITION_DELETES)


def _delete(table: Table, rows: pa.Table, **about: Any) -> None:
    file = f"{re.sub('^file:(//)?', '', table.location())}/data/deletes.parquet"
    pq.write_table(rows, file)
    deletes = DataFile.from_args(
        **about,
        file_path=f"file://{file}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(file).stat().st_size,
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        producer: Any = transaction.update_snapshot().fast_append()
        producer.new_manifest_writer = lambda spec: DeletesWriter(
            spec, table.schema(), producer.new_manifest_output(), producer.snapshot_id, "deflate"
        )
        producer.append_data_file(deletes)
        producer.commit()


class DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
