"""Every record goes one way, chosen by its topic and its type; the faults of the others say why."""

import json
import pickle
import re
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages.records import Fault, Records
from lakehouse_ingest.stages.routing import NOT_KEPT, Route, Router, Way, refused, row_numbers
from tests.stages.making import BROKEN, SmallJson, records_of

KINDS = ["order", "payment", "debug", "Order", "käse", "{0}", "[x", "a b", "x" * 255]
NAMELESS = [None, "", "x" * 256, {"a": 1}, [0], '{"a":1,"a":2}', ' [1, {"b": NaN}]']


def stream_of(*tables: dict[str, Any], **stream: Any) -> StreamSettings:
    known = {"topics": ["events"], "type_from": "field:type", "tables": [*tables] or [{"table": "{type}"}], **stream}
    return StreamSettings.model_validate(known)


def router_of(*tables: dict[str, Any], **stream: Any) -> Router:
    return Router(stream_of(*tables, **stream), SmallJson())


def typed(kinds: list[Any], topic: str = "events") -> Records:
    return records_of([json.dumps({"type": kind}).encode() for kind in kinds], topic=topic)


def ways(router: Router, records: Records) -> dict[Way, list[int]]:
    found = router.split(records)
    ways = {each.way: each.rows.to_pylist() for each in found}
    assert len(ways) == len(found)
    assert sorted(row for rows in ways.values() for row in rows) == [*range(len(records))]
    assert all(rows and rows == sorted(rows) for rows in ways.values())
    return ways


class TestRoute:
    @pytest.mark.parametrize("route", [Route(0), Route(12, "a.b", "x"), Route(3, "", "\x1f{type}")])
    def test_is_read_back_from_its_text(self, route: Route) -> None:
        assert Route.parse(str(route)) == route

    def test_has_the_text_that_tables_and_logs_know(self) -> None:
        assert str(Route(1, "t", "k")) == "1\x1ft\x1fk"

    @pytest.mark.parametrize(
        ("table", "stream", "found"),
        [
            ({"table": "all"}, {}, Route(0)),
            ({"table": "all"}, {"topics": [], "topic_pattern": ".*"}, Route(0)),
            ({"table": "e_{topic}"}, {}, Route(0, "events")),
        ],
    )
    def test_is_that_of_all_records_if_it_is_the_only_one(
        self, table: dict[str, Any], stream: dict[str, Any], found: Route
    ) -> None:
        known = stream_of(table, **stream)
        assert ways(Router(known, SmallJson()), typed(["order", None])) == {found: [0, 1]}


class TestSplit:
    def test_gives_each_type_its_rows_and_names_what_is_not_kept(self) -> None:
        """Three types, one that is not kept, two records without a type that may be one, one of no JSON."""
        records = typed(["order", "payment", "debug", "order", "refund", None, "x" * 256])
        records = Records("events", 0, "", pa.concat_batches([records.rows, records_of([b'{"type": "order", ']).rows]))
        router = router_of(keep_types="^(order|payment|refund)$")
        assert ways(router, records) == {
            Route(0, "", "order"): [0, 3],
            Route(0, "", "payment"): [1],
            NOT_KEPT: [2],
            Route(0, "", "refund"): [4],
            None: [5, 6, 7],
        }

    def test_tries_entries_in_order(self) -> None:
        entries: list[dict[str, Any]] = [
            {"table": "money", "types": ["order", "payment"], "topics": ["events"]},
            {"table": "orders_{topic}", "types": ["order"]},
            {"table": "rest"},
        ]
        router = router_of(*entries, topics=["events", "other"])
        assert ways(router, typed(["order", "payment", "login", None])) == {Route(0): [0, 1], Route(2): [2, 3]}
        assert ways(router, typed(["order", "payment", "login"], "other")) == {Route(1, "other"): [0], Route(2): [1, 2]}

    def test_of_a_topic_that_no_entry_names_finds_no_way(self) -> None:
        router = router_of({"table": "all", "topics": ["events"]}, topics=[], topic_pattern=".*", type_from=None)
        assert ways(router, typed([1, 2])) == {Route(0): [0, 1]}
        assert ways(router, typed([1, 2], "others")) == {None: [0, 1]}

    def test_of_no_records_is_empty(self) -> None:
        assert router_of().split(typed([])) == []

    def test_of_one_way_copies_nothing(self) -> None:
        records = typed(["order"] * 3)
        (found,) = router_of().split(records)
        assert found.of(records.rows) is records.rows
        assert found.rows.to_pylist() == [0, 1, 2]

    def test_takes_the_rows_of_each_way(self) -> None:
        records = typed(["b", "a", "b"])
        found = {each.way: each.of(records.rows)["offset"].to_pylist() for each in router_of().split(records)}
        assert found == {Route(0, "", "b"): [0, 2], Route(0, "", "a"): [1]}

    def test_filters_nothing_that_has_no_type(self) -> None:
        router = router_of({"table": "all"}, keep_types="order")
        assert ways(router, typed(["order", "debug", None])) == {Route(0): [0, 2], NOT_KEPT: [1]}

    @given(st.lists(st.sampled_from([*KINDS, *NAMELESS]), max_size=40), st.integers(0, 3))
    def test_agrees_with_each_record_alone(self, kinds: list[Any], cut: int) -> None:
        entries: list[dict[str, Any]] = [
            {"table": "a", "types": ["order", "[x"]},
            {"table": "b_{type}"},
            {"table": "c", "topics": ["other"]},
        ]
        router = router_of(*entries, keep_types="(?i)^[a-z{x[]")
        records = typed(kinds)
        records = Records("events", 0, "", records.rows.slice(cut))
        expected: dict[Way, list[int]] = {}
        for row, kind in enumerate(kinds[cut:]):
            way: Way = Route(1, "", kind) if kind in KINDS else None
            way = Route(0) if kind in ("order", "[x") else way
            expected.setdefault(way, []).append(row)
        assert ways(router, records) == expected

    def test_survives_being_pickled(self) -> None:
        for pattern in ("order", "^(order.?)+$"):
            router = pickle.loads(pickle.dumps(router_of(keep_types=pattern)))
            assert ways(router, typed(["order", "x"])) == {Route(0, "", "order"): [0], NOT_KEPT: [1]}


class TestType:
    @pytest.mark.parametrize("kind", KINDS)
    def test_may_be_any_text_of_a_field(self, kind: str) -> None:
        assert ways(router_of(), typed([kind])) == {Route(0, "", kind): [0]}

    @pytest.mark.parametrize("kind", NAMELESS, ids=str)
    def test_is_none_if_it_is_too_long_or_an_object_or_a_list(self, kind: Any) -> None:
        assert ways(router_of(), typed([kind])) == {None: [0]}

    def test_may_stand_deep_in_a_record(self) -> None:
        records = records_of([b'{"a": {"b": "order"}}', b'{"a": "order"}'])
        assert ways(router_of(type_from="field:a.b"), records) == {Route(0, "", "order"): [0], None: [1]}

    def test_may_stand_in_the_key(self) -> None:
        keys = [b"order", None, b"\xff", b"", b'{"id": 1}', b'{"a":1,"a":2}', b"{0}", b"order", "ß".encode() * 255]
        found = ways(router_of(type_from="key"), records_of([b""] * 9, keys))
        assert found == {
            Route(0, "", "order"): [0, 7],
            None: [1, 2, 3, 4, 5],
            Route(0, "", "{0}"): [6],
            Route(0, "", "ß" * 255): [8],
        }

    def test_may_stand_in_the_last_header_of_its_name(self) -> None:
        headers = [
            [("kind", b"old"), ("kind", b"order"), ("other", b"x")],
            None,
            [],
            [("other", b"order")],
            [("kind", None)],
            [("kind", b"order"), ("kind", None)],
            [("kind", b"\xff")],
            [("kind", b"payment")],
        ]
        records = records_of([b""] * len(headers), headers=headers)
        router = router_of(type_from="header:kind")
        payment, order = Route(0, "", "payment"), Route(0, "", "order")
        assert ways(router, records) == {order: [0], None: [1, 2, 3, 4, 5, 6], payment: [7]}
        for start in range(len(headers)):
            part = Records("events", 0, "", records.rows.slice(start))
            assert ways(router, part)[payment] == [len(headers) - start - 1]
        assert ways(router_of(type_from="header:none"), records) == {None: [*range(len(headers))]}

    def test_of_every_record_may_be_another(self) -> None:
        kinds = [f"t{number:05}" for number in range(5_000)]
        assert ways(router_of(), typed(kinds)) == {Route(0, "", kind): [row] for row, kind in enumerate(kinds)}


class TestKeptTypes:
    def test_are_searched_for_anywhere(self) -> None:
        assert ways(router_of(keep_types="rd"), typed(["order", "debug"])) == {
            Route(0, "", "order"): [0],
            NOT_KEPT: [1],
        }

    def test_may_be_said_by_what_does_not_follow(self) -> None:
        found = ways(router_of(keep_types="^(?!debug)"), typed(["order", "debug.x"]))
        assert found == {Route(0, "", "order"): [0], NOT_KEPT: [1]}

    @pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "^(a*)*$", "a*a*a*a*a*b", "^(\\w+\\.?)+$", "a*a*a*b"])
    def test_are_found_in_little_time_whatever_a_sender_makes_up(self, pattern: str) -> None:
        router, records = router_of(keep_types=pattern), typed(["a" * 254 + "!"])
        began = monotonic()
        assert ways(router, records) == {NOT_KEPT: [0]}
        assert monotonic() - began < 5

    @pytest.mark.parametrize("pattern", ["(?!x)(a+)+$", r"(a)\1(b*)*", "(?=a)a*a*a*a*b"])
    def test_are_refused_if_only_python_knows_the_pattern_and_may_search_for_hours(self, pattern: str) -> None:
        said = rf"`keep_types` could search a single type for hours: {re.escape(pattern)}; write it without"
        with pytest.raises(SettingsRefused, match=said):
            router_of(keep_types=pattern)

    @given(st.lists(st.text("ab.", max_size=8), max_size=8), st.sampled_from([r"^(a|b\.)+$", "(a.)*b", "(ab){2}"]))
    def test_are_the_same_with_both_engines(self, kinds: list[str], pattern: str) -> None:
        found = ways(router_of({"table": "all"}, keep_types=pattern), typed(kinds))
        assert found.get(NOT_KEPT, []) == [
            row for row, kind in enumerate(kinds) if kind and not re.search(pattern, kind)
        ]


class TestAstray:
    """A record that no entry takes."""

    def test_says_its_topic_and_type_but_shows_no_type(self) -> None:
        router = router_of({"table": "all", "types": ["order"]})
        records = typed(["order", "Ann Smith" * 10, None])
        (_, left) = router.split(records)
        assert left.way is None
        faults = router.astray(records, left.rows)
        untaken = "no entry of `streams.tables` takes the topic"
        assert faults == {
            1: Fault(
                Reason.NO_TABLE,
                f"{untaken} events with the type {('Ann Smith' * 10)[:60]}",
                "route",
                f"{untaken} with this type",
            ),
            2: Fault(Reason.NO_TABLE, "no type is found at field:type", "route", "no type is found at field:type"),
        }

    def test_says_its_topic_if_there_are_no_types(self) -> None:
        router = router_of({"table": "all", "topics": ["others"]}, type_from=None)
        records = typed([1])
        untaken = "no entry of `streams.tables` takes the topic"
        expected = Fault(Reason.NO_TABLE, f"{untaken} events", "route", untaken)
        assert router.astray(records, row_numbers(1)) == {0: expected}

    def test_says_that_it_cannot_be_read_if_so(self) -> None:
        router = router_of()
        records = records_of([b'{"type": "order", ', b"{}", None])
        (left,) = router.split(records)
        faults = router.astray(records, left.rows)
        assert [faults[row].reason for row in range(3)] == [Reason.BROKEN, Reason.NO_TABLE, Reason.EMPTY]
        assert faults[0] == BROKEN

    def test_of_a_refused_table_says_why(self) -> None:
        found = refused(pa.array([3, 5]), Reason.NAME_TAKEN, "the name a is taken by another topic or type")
        assert {*found} == {3, 5}
        assert found[5] == Fault(Reason.NAME_TAKEN, "the name a is taken by another topic or type", "route", "")


class TestRowNumbers:
    @pytest.mark.parametrize("count", [0, 1, 65_536, 65_537, 200_000])
    def test_begin_with_0(self, count: int) -> None:
        assert row_numbers(count).to_pylist() == [*range(count)]
