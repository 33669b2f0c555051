"""Entries for tables: two that lead to one table are refused, and what a table could not begin with."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.services.given_settings import loaded, refused

A, B = {"topics": ["a"]}, {"topics": ["b"]}
X, Y = {"types": ["x"]}, {"types": ["y"]}


def sharing(template: str, *entries: Mapping[str, list[str]]) -> dict[str, Any]:
    tables = [{**entry, "table": template} for entry in entries]
    return {"name": "x", "streams": [{"topics": ["a", "b"], "type_from": "key", "tables": tables}]}


class TestTableEntries:
    @pytest.mark.parametrize(
        ("template", "entries"),
        [
            ("{type}", (A, B)),
            ("{type}", (A, {})),
            ("{topic}", (X, Y)),
            ("{type}", ({**A, **X}, X)),
            ("{topic}", (X, B, {**A, **Y})),
        ],
    )
    def test_that_lead_to_one_table_are_refused(self, template: str, entries: tuple[dict[str, list[str]], ...]) -> None:
        """Each would land its rows as if it were alone with the table."""
        assert f"should have one entry for the table {template}" in refused(sharing(template, *entries))

    @pytest.mark.parametrize(
        ("template", "entries"),
        [
            ("{topic}", (A, B)),
            ("{topic}", (A, {})),
            ("{type}", (X, Y)),
            ("{type}", (X, {})),
            ("{type}", ({**A, **X}, {**B, **Y})),
            ("{topic}_{type}", (A, X, {})),
        ],
    )
    def test_that_lead_to_different_tables_may_share_a_template(
        self, template: str, entries: tuple[dict[str, list[str]], ...]
    ) -> None:
        assert len(loaded(sharing(template, *entries)).streams[0].tables) == len(entries)


class TestRefusal:
    def test_of_an_unsupported_format_version_names_the_supported_ones(self) -> None:
        tables = [{"properties": {"format-version": "3"}}]
        sentence = refused({"streams": [{"topics": ["sensors"], "tables": tables}]})
        assert sentence.startswith("the setting `streams.0.tables.0.properties` should have format-version 1 or 2")
