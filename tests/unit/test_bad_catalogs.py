"""What a catalog may give in place of a table: one sentence that names the object and says what to do."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

import catalog
from lakehouse_ingest.errors import LONGEST, LakehouseError, NeedsOperator, SettingsRefused, fitted
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.operations.check import _tables
from lakehouse_ingest.pipeline.effects import Effects
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.records import Reason, SourceIdentity
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.routing import Route
from lakehouse_ingest.tables import Column, Connection, PipelineTables, Registered, TableSpec
from lakehouse_ingest.tables.stream_tables import Refusal, StreamTables
from telemetry import OFF
from tests.unit.catalog_package.test_errors import METADATA, Answer, after_connecting, refusal, serving

NAME = "iot.sensors"
SPEC = TableSpec(NAME, (Column("id", "long"),))
NOTHING = 404, json.dumps({"error": {"message": "none", "type": "NoSuchTableException", "code": 404}})
NO_NAMESPACE = 404, json.dumps({"error": {"message": "none", "type": "NoSuchNamespaceException", "code": 404}})
FINE = {"metadata-location": "file:/m", "metadata": METADATA}

Bodies = Mapping[tuple[str, str], tuple[int, str]]
"""Answers by method and the end of the path."""


def answering(bodies: Bodies) -> Answer:
    def answer(request: Any) -> tuple[int, str]:
        for (method, path), found in bodies.items():
            if request.command == method and request.path.partition("?")[0].endswith(path):
                return found
        return NOTHING

    return after_connecting(answer)


@contextmanager
def lake_with(bodies: Bodies, *, create: bool = True) -> Iterator[PipelineTables]:
    with serving(answering(bodies)) as uri:
        yield PipelineTables(Connection(uri), "plant", create=create)


def of(**changes: Any) -> tuple[int, str]:
    return 200, json.dumps({**FINE, "metadata": {**METADATA, **changes}})


HTML = 200, "<html>welcome</html>"
TABLE, VIEW = ("GET", "/tables/sensors"), ("HEAD", "/views/sensors")
GONE = refusal(
    404, "NotFoundException: Location does not exist: file:/lake/iot/sensors/metadata/00001-ab.metadata.json"
)
FIELDS = [{"id": 1, "name": "v", "type": "variant", "required": False}]

TABLES: dict[str, tuple[Bodies, str]] = {
    "nonsense": ({TABLE: HTML}, "not one of an Iceberg REST catalog; see what answers there"),
    "metadata gone": ({TABLE: GONE}, "00001-ab.metadata.json is gone: restore it, or drop the table's entry"),
    "newer format": ({TABLE: of(**{"format-version": 9})}, "has format version 9, .*; name another table"),
    "newer type": (
        {TABLE: of(schemas=[{"type": "struct", "schema-id": 0, "fields": FIELDS}])},
        "a column of type 'variant', which is not understood; name another table",
    ),
}


LISTED: dict[tuple[str, str], tuple[int, str]] = {
    ("GET", "/namespaces/iot/tables"): (200, json.dumps({"identifiers": [{"namespace": ["iot"], "name": "sensors"}]}))
}
UNREADABLE: dict[str, Bodies] = {
    **{found: bodies for found, (bodies, _) in TABLES.items()},
    "forbidden": {TABLE: refusal(403)},
    "an error each time": {TABLE: refusal(500)},
}


class TestBadTable:
    @pytest.mark.parametrize("found", TABLES)
    def test_is_refused_by_name_whoever_asks(self, found: str) -> None:
        """Whoever asks: a start, the first row, or `check`."""
        bodies, said = TABLES[found]
        asks: list[Callable[[PipelineTables], object]] = [
            lambda lake: lake.find(NAME),
            lambda lake: lake.create(SPEC),
            lambda lake: lake.pin(NAME),
            lambda lake: lake.set_properties(NAME, {"a": "b"}),
            lambda lake: _tables(settings(), lake),
        ]
        with lake_with(bodies) as lake:
            for ask in asks:
                with pytest.raises(NeedsOperator, match=said) as told:
                    ask(lake)
                assert NAME in str(told.value)
                assert len(fitted(str(told.value))) <= LONGEST

    @pytest.mark.parametrize("found", UNREADABLE)
    def test_of_others_stops_only_a_stream_that_may_need_it(self, found: str) -> None:
        """It stops who names it, or who has been in this namespace before and knows no more where."""
        with lake_with({**LISTED, **UNREADABLE[found]}) as lake:
            known = lake.known_in("iot")
        assert (known.tables, [*known.unread]) == ({}, [NAME])
        known.refuse_unread("plant", {"iot.others"})
        with pytest.raises(type(known.unread[NAME]), match=str(known.unread[NAME])):
            known.refuse_unread("plant", {NAME})
        with pytest.raises(
            type(known.unread[NAME]), match=r"; the batch log no longer lists plant, so this table may be"
        ):
            replace(known, tables={"iot.others": Registered("")}).refuse_unread("plant", set())

    def test_that_is_a_view_is_refused(self) -> None:
        """Of the settings: refused before anything is read. Of a record from the outside: its own fault."""
        taken = 409, json.dumps({"error": {"message": "there", "type": "AlreadyExistsException", "code": 409}})
        said = f"{NAME} is a view, and a table is needed; name another one"
        with lake_with({VIEW: (204, ""), ("POST", "/namespaces/iot/tables"): taken}) as lake:
            assert lake.look(NAME).refusal == said
            with pytest.raises(NeedsOperator, match=said):
                lake.create(SPEC)
            with pytest.raises(NeedsOperator, match=said):
                _tables(settings(), lake)
            with pytest.raises(SettingsRefused, match=said):
                tables(lake, "sensors")
            (found,) = tables(lake, "{type}").at(Route(0, "", "sensors"))
            assert found == Refusal(Reason.NAME_TAKEN, said)

    @pytest.mark.parametrize("status", [400, 403, 404, 405, 501])
    def test_is_not_suspected_where_the_catalog_lists_no_views(self, status: int) -> None:
        with lake_with({VIEW: refusal(status)}) as lake:
            assert lake.look(NAME).missing


class Looked(Exception):
    """A start has found what it needs."""


def as_effects(lake: PipelineTables) -> Effects:
    """Of a start that ends before its first batch."""
    return cast("Effects", SimpleNamespace(tables=lake))


class TestBadNamespace:
    @pytest.mark.parametrize("status", [400, 403, 501])
    def test_that_may_not_be_created_is_refused_with_the_setting(self, status: int) -> None:
        bodies = {
            ("HEAD", "/namespaces/iot"): (404, ""),
            ("GET", "/namespaces/iot"): NO_NAMESPACE,
            ("POST", "/namespaces"): refusal(status, "you may not " * 30),
        }
        with serving(answering(bodies)) as uri:
            plain = catalog.connect(Connection(uri))
            with pytest.raises(
                catalog.NamespaceRefused, match=r"namespace iot: .*; make it in the catalog, or allow it$"
            ):
                catalog.ensure_namespace(plain, "iot")
            lake = PipelineTables(Connection(uri), "plant")
            for ask in (lambda: lake.ensure_namespace("iot"), lambda: lake.probe("iot").__enter__()):
                with pytest.raises(
                    SettingsRefused, match=r"iot.*; make it .*, or name another in `catalog\.namespace`$"
                ) as told:
                    ask()
                assert len(str(told.value)) <= LONGEST

    def test_for_an_unknown_client_is_refused_with_the_token_setting(self) -> None:
        with lake_with({("GET", "/namespaces/iot"): refusal(401)}) as lake, pytest.raises(SettingsRefused) as told:
            lake.ensure_namespace("iot")
        assert "`catalog.token`" in str(told.value)

    @pytest.mark.parametrize("body", ["<html>", "[]", "null", ""])
    def test_that_is_answered_with_nonsense_is_refused(self, body: str) -> None:
        with lake_with(
            {("GET", "/namespaces/iot"): (200, body), ("GET", "/namespaces/iot/tables"): (200, body)}
        ) as lake:
            with pytest.raises(NeedsOperator, match="of iot: the answer is not one of an Iceberg REST catalog"):
                lake.known_in("iot")
            with pytest.raises(LakehouseError, match="namespace iot: the answer is not one of an Iceberg REST catalog"):
                lake.ensure_namespace("iot")


class TestCatalogWithoutCreation:
    def test_refuses_what_is_missing_with_the_setting(self) -> None:
        """Before anything is read; of a record from the outside it is its own fault, until somebody has made the
        table."""
        there = {("GET", "/tables/others"): of(), ("GET", "/namespaces/iot"): NO_NAMESPACE}
        said = "there is no {}, and it may not be made: make it, or allow it; see `catalog.create`"
        with lake_with(there, create=False) as lake:
            asks: list[Callable[[], object]] = [
                lambda: lake.create(SPEC),
                lambda: lake.need("iot.others", NAME),
                lambda: _tables(settings(), lake),
            ]
            for ask in asks:
                with pytest.raises(SettingsRefused) as told:
                    ask()
                assert str(told.value) == said.format(f"table {NAME}")
            with pytest.raises(SettingsRefused) as told:
                lake.ensure_namespace("iot")
            assert str(told.value) == said.format("namespace iot")
            assert lake.create(replace(SPEC, name="iot.others")).name == "iot.others"
            of_records = tables(lake, "{type}")
            refused = Refusal(Reason.NO_TABLE, said.format(f"table {NAME}"))
            assert of_records.at(Route(0, "", "sensors")) == [refused]
            assert not of_records.keepers
        with lake_with({}) as lake:
            lake.need(NAME)

    @pytest.mark.parametrize(
        ("stream", "end"),
        [
            ({"topics": ["sensors"]}, SettingsRefused),
            ({"topic_pattern": "s.*"}, Looked),
            ({"topic_pattern": "s.*", "tables": [{"topics": ["sensors"]}]}, SettingsRefused),
            ({"topic_pattern": "s.*", "tables": [{"table": "sensors"}]}, SettingsRefused),
        ],
        ids=["a topic", "a pattern", "a pattern, and an entry of the topic", "a pattern, and the table"],
    )
    def test_lets_a_stream_with_a_pattern_go_on_after_a_new_topic(
        self, stream: dict[str, Any], end: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the settings name has to be there; of what else a pattern finds, the records are dead letters."""
        plain = Settings.model_validate(
            {"name": "plant", "streams": [stream], "catalog": {"namespace": "iot", "create": False}}
        )
        found = plain.streams[0].model_copy(update={"topics": ("sensors",)})
        there = {
            ("GET", "/namespaces/iot"): (200, json.dumps({"namespace": ["iot"], "properties": {}})),
            ("GET", "/namespaces/iot/tables"): (200, json.dumps({"identifiers": []})),
            **{("GET", f"/tables/{name}"): of() for name in (plain.ledger.batch_table, plain.dead_letters.table)},
        }
        with lake_with(there, create=False) as lake:
            monkeypatch.setattr(lake, "begin_within", MagicMock(side_effect=Looked("so far")))
            watch, identity = Watch("plant", OFF), SourceIdentity("cluster", {})
            begins = Stream(plain, found, MagicMock(), MagicMock(), watch, tmp_path, RunOptions(), Event())
            budget = RetryBudget(1, 1)
            begun = OneStart(begins, MagicMock(), MagicMock(), identity, lake, budget, ExitStack(), ExitStack())
            with pytest.raises(end, match=f"no table {NAME}|^so far$"):
                begun.opened(as_effects(lake), MagicMock())


def settings() -> Settings:
    return Settings.model_validate(
        {"name": "plant", "streams": [{"topics": ["sensors"]}], "catalog": {"namespace": "iot"}}
    )


def tables(lake: PipelineTables, template: str) -> StreamTables:
    stream = {"topics": ["t"], "type_from": "key", "tables": [{"table": template}]}
    return StreamTables(
        lake,
        lake,
        Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0],
        "iot",
        cast("Any", SimpleNamespace(place=None)),  # the batch log, to which nothing is written here
        (),
        1,
        {},
        {},
        lambda _table, _changes: None,
        lambda names: {name: lake.find(name) for name in names},
    )
