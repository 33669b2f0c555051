"""Which table a route leads to, where nothing of it was opened yet."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.formats import json_object
from lakehouse_ingest.records import Reason
from lakehouse_ingest.routing import Route
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stream_tables import Refusal, StreamTables
from lakehouse_ingest.tables import Column, Lake, Registered
from tests.services.schemas import table_of

TO_SENSORS = Route(0, "", "sensors")


def full(told: dict[str, Any], *, landed: bool) -> StreamTables:
    """A stream that feeds as many tables as it may, and whose batch record does not know of `sensors`."""
    lake = SimpleNamespace(
        find=lambda _: table_of((Column("id", "long"),)),
        has_landed_in=lambda _: landed,
        register=lambda _, tables: told.update(tables),
    )
    stream = {"topics": ["t"], "type_from": "key", "tables": [{"table": "{type}"}], "max_tables": 1}
    return StreamTables(
        cast("Lake", lake),
        Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0],
        json_object,
        "iot",
        "iot.lakehouse_batches",
        (),
        1,
        {"iot.before": Registered("u")},
        {},
        lambda _table, _changes: None,
    )


def test_a_table_with_rows_of_ours_is_begun_with_however_many_there_are() -> None:
    """Its records would be dead letters otherwise, beside those that have landed."""
    told: dict[str, Any] = {}
    with pytest.raises(TryAgain, match=r"iot\.sensors was not known"):
        full(told, landed=True).at(TO_SENSORS)
    assert [*told] == ["iot.sensors"]


def test_one_more_than_the_stream_may_feed_is_refused() -> None:
    found = full({}, landed=False).at(TO_SENSORS)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.TOO_MANY_TABLES
