"""Which table a route leads to, where nothing of it was opened yet."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger.keys import TYPE
from lakehouse_ingest.pipeline import batch
from lakehouse_ingest.pipeline.passes import Passes
from lakehouse_ingest.records import Range, Reason, Token
from lakehouse_ingest.settings import Settings, TableSettings
from lakehouse_ingest.stages.routing import Route
from lakehouse_ingest.tables import Column, PipelineTables, Position, Registered, TableState, stream_tables
from lakehouse_ingest.tables.effects import Landing
from lakehouse_ingest.tables.stream_tables import REFUSED_S, Refusal, StreamTables, foretold
from lakehouse_ingest.tables.table_keeper import TableKeeper
from tests.services.schemas import table_of

TO_SENSORS = Route(0, "", "sensors")


def full(told: dict[str, Any], *, landed: bool) -> StreamTables:
    """A stream that feeds as many tables as it may, and whose batch record does not know of `sensors`."""
    return fed_from(
        find=lambda _: table_of((Column("id", "long"),)),
        has_landed_in=lambda _: landed,
        register=lambda _, tables: told.update(tables),
    )


OF_TYPES = {"topics": ["t"], "type_from": "key", "tables": [{"table": "{type}"}], "max_tables": 1}
STREAM = Settings.model_validate({"name": "plant", "streams": [OF_TYPES]}).streams[0]


def fed_from(**lake: Any) -> StreamTables:
    there = cast("Any", SimpleNamespace(**lake))
    return StreamTables(
        there,
        there,
        STREAM,
        "iot",
        cast("Any", SimpleNamespace(place=None)),  # the batch log, which the effects here do not look at
        (),
        1,
        {"iot.before": Registered("u")},
        {},
        lambda _table, _changes: None,
        lambda names: {name: lake["find"](name) for name in names},
    )


class TestFullStream:
    def test_restarts_for_a_table_that_has_our_rows(self) -> None:
        """Its records would be dead letters otherwise, beside those that have landed."""
        told: dict[str, Any] = {}
        with pytest.raises(TryAgain, match=r"iot\.sensors has rows of this pipeline that this start did not count"):
            full(told, landed=True).at(TO_SENSORS)
        assert [*told] == ["iot.sensors"]

    def test_refuses_one_more_table(self) -> None:
        (found,) = full({}, landed=False).at(TO_SENSORS)
        assert isinstance(found, Refusal)
        assert found.reason is Reason.TOO_MANY_TABLES


class TestRefusedTable:
    def test_that_may_not_be_created_is_looked_up_now_and_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Types come from the outside: each costs one request, and not with every batch, until somebody makes its
        table."""
        asked: list[str] = []
        there: dict[str, TableState] = {}

        def find(name: str) -> TableState | None:
            asked.append(name)
            return there.get(name)

        now = 100.0
        monkeypatch.setattr(stream_tables, "monotonic", lambda: now)
        tables = fed_from(find=find, creates=False, has_landed_in=lambda _: False)
        asked.clear()
        routes = [Route(0, "", kind) for kind in ("sensors", "other", "beyond what is kept")]
        (first,), (other,), (beyond,) = (tables.at(route) for route in routes)
        assert isinstance(first, Refusal)
        assert first.reason is Reason.NO_TABLE
        assert "no table iot.sensors, and it may not be made" in first.detail
        assert asked == ["iot.sensors", "iot.other", "iot.beyond_what_is_kept"]
        there["iot.sensors"] = table_of((Column("id", "long"),))
        now += REFUSED_S - 1
        assert tables.at(*routes) == [first, other, beyond]
        assert asked[3:] == ["iot.beyond_what_is_kept"]
        now += 1
        (found,) = tables.at(TO_SENSORS)
        assert isinstance(found, Refusal)
        assert found.reason is Reason.TOO_MANY_TABLES  # it is there by now, and one more than the stream may feed

    def test_whose_name_was_taken_is_looked_up_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody may move the table that was in the way, and ends no pipeline for it."""
        now, in_the_way = 100.0, {TYPE: "of another pipeline"}
        there: dict[str, TableState] = {}
        monkeypatch.setattr(stream_tables, "monotonic", lambda: now)
        tables = fed_from(
            find=lambda name: there.get(name) or table_of((), properties=in_the_way),
            creates=True,
            has_landed_in=lambda _: False,
        )
        (taken,) = tables.at(TO_SENSORS)
        assert isinstance(taken, Refusal)
        assert taken.reason is Reason.NAME_TAKEN
        there["iot.sensors"] = table_of(())
        assert tables.at(TO_SENSORS)[0] is taken
        now += REFUSED_S
        (found,) = tables.at(TO_SENSORS)
        assert isinstance(found, Refusal)
        assert found.reason is Reason.TOO_MANY_TABLES  # the name is free by now, and one more than the stream may feed

    def test_that_was_not_looked_up_names_the_setting_that_would_help(self) -> None:
        """Where no table may be made a higher limit would make none."""
        made, unmade = (fed_from(creates=creates).unasked for creates in (True, False))
        assert (made.reason, unmade.reason) == (Reason.TOO_MANY_TABLES, Reason.NO_TABLE)
        assert made.detail.endswith("`max_tables`")
        assert unmade.detail.endswith("it may not be made: make it, or allow it; see `catalog.create`")


class TestForeseenTables:
    @pytest.mark.parametrize(
        ("entries", "found"),
        [
            ([{"topics": ["a"], "table": "x"}, {}], ["x", "b"]),
            ([{"table": "all_{topic}"}, {}], ["all_a", "all_b"]),
            ([{"topics": ["a"], "types": ["order"], "table": "x"}, {}], ["x", "a", "b"]),
            ([{"topics": ["a"], "table": "of_{type}"}, {}], ["a", "b"]),
            ([{"topics": ["a"], "table": "x"}, {"table": "y"}], ["x", "y"]),
            ([{"table": "x"}, {"table": "y"}], ["x", "y"]),
        ],
        ids=["one topic", "all", "only some types", "not without a type", "another for the rest", "named, if in vain"],
    )
    def test_exclude_topics_that_an_earlier_entry_takes_whole(
        self, entries: list[dict[str, Any]], found: list[str]
    ) -> None:
        stream = {"topics": ["a", "b"], "type_from": "key", "tables": entries}
        settings = Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0]
        assert foretold(settings, settings.topics) == found


class TestOpenedTable:
    def test_is_registered_before_the_tasks_that_write(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that is there and empty at the first start brings no news; the batch log has to know of it all the
        same."""
        told: list[dict[str, Registered]] = []
        lake = cast("Any", MagicMock(set_properties=lambda _, properties: told.append(properties)))
        lake.register = partial(PipelineTables.register, lake)
        tables = fed_from(register=lake.register)
        place = Position("iot.sensors", "branch", 1, None, {}, known=True, uuid="u")
        landing = Landing(place, MagicMock())
        tables._found[Route(0)] = TableKeeper(lake, lake, place.table, TableSettings(), 1, MagicMock(), landing=landing)
        registered: list[int] = []

        class Written(Exception): ...

        def outcome(*_: object) -> None:
            registered.append(len(told))
            raise Written

        monkeypatch.setattr(Passes, "outcome", outcome)
        opened = MagicMock(tables=tables, held=MagicMock(held={}), dead=MagicMock(is_stale=False))
        runner = batch.BatchRunner(
            opened, STREAM, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock(), lambda: 2
        )
        read = batch.BatchIdentity(Range({("t", 0): 0}, {("t", 0): 1}), Token("p", 0, 1, 0), "")
        for _ in range(2):
            with pytest.raises(Written):
                runner._read(read, traced=False)
        assert registered == [1, 1]  # nothing is asked of the catalog by the second batch
        assert tables.registered["iot.sensors"].uuid == "u"
