"""What a catalog lacks is found by trying, and the table that it is tried on goes away again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)

from catalog import CatalogClient, OutcomeUnknown, ensure_namespace, has_namespace, names_in, probe
from catalog.commits import MAIN
from tests.services.sqlite_catalog import sqlite_catalog

Requirement = Any


@dataclass
class Lax:
    """A catalog that does not look at some requirements."""

    real: Catalog
    skips: Callable[[Requirement, Table], bool] = lambda _requirement, _table: False
    changes: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda updates: updates
    before: Callable[[tuple[Any, ...]], None] = lambda _updates: None
    sent: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.sent.append(1)
        self.before(updates)
        now = self.real.load_table(table.name())
        looked_at = tuple(each for each in requirements if not self.skips(each, now))
        return self.real.commit_table(table, looked_at, self.changes(updates))

    def client(self) -> CatalogClient:
        return CatalogClient(cast("Catalog", self))


@pytest.fixture
def real(tmp_path: Path) -> Iterator[SqlCatalog]:
    there = sqlite_catalog(tmp_path)
    ensure_namespace(CatalogClient(there), "ns")
    yield there
    there.close()


def of_main(requirement: Requirement, _: Table) -> bool:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.ref == MAIN


def of_others(requirement: Requirement, _: Table) -> bool:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.ref != MAIN


def of_missing(requirement: Requirement, table: Table) -> bool:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.ref not in table.metadata.refs


def of(kind: type) -> Callable[[Requirement, Table], bool]:
    return lambda requirement, _: isinstance(requirement, kind)


def main_only(updates: tuple[Any, ...]) -> tuple[Any, ...]:
    """Once the branch is there it stays where it is."""
    moved = [each for each in updates if isinstance(each, SetSnapshotRefUpdate)]
    return tuple(each for each in updates if len(moved) == 1 or each not in moved or each.ref_name == MAIN)


class TestProbe:
    def test_finds_nothing_lacking_in_a_good_catalog(self, real: SqlCatalog) -> None:
        found = probe(CatalogClient(real), "ns")
        assert (found.failures, found.keeps_fences) == ((), True)

    @pytest.mark.parametrize(
        ("skips", "named"),
        [
            (of_main, ["the place of main"]),
            (of_others, ["the place of another branch", "the place of a branch that was dropped"]),
            (of_missing, ["the place of a branch that was dropped"]),
            (of(AssertCurrentSchemaId), ["the current schema"]),
            (of(AssertDefaultSpecId), ["the partition layout"]),
            (of(AssertTableUUID), ["the uuid of the table"]),
        ],
    )
    def test_names_each_check_that_a_catalog_leaves_out(self, real: SqlCatalog, skips: Any, named: list[str]) -> None:
        found = probe(Lax(real, skips).client(), "ns")
        assert not found.keeps_fences
        assert len(found.failures) == len(named)
        for failure, what in zip(found.failures, named, strict=True):
            assert failure.startswith(f"the catalog took a request that was wrong about {what}, so ")

    def test_names_a_catalog_that_moves_one_ref_only(self, real: SqlCatalog) -> None:
        found = probe(Lax(real, changes=main_only).client(), "ns")
        assert found.failures == (
            "the catalog took a request to move main and another branch together, and did not move both",
        )

    def test_names_a_catalog_that_takes_no_branch(self, real: SqlCatalog) -> None:
        def refuse(updates: tuple[Any, ...]) -> None:
            if any(isinstance(each, SetSnapshotRefUpdate) and each.ref_name != MAIN for each in updates):
                raise BadRequestError("only main")

        (failure,) = probe(Lax(real, before=refuse).client(), "ns").failures
        assert failure.startswith("the catalog allows no branch beside main: ")
        assert "only main" in failure

    def test_names_a_catalog_that_takes_one_ref_a_request(self, real: SqlCatalog) -> None:
        def refuse(updates: tuple[Any, ...]) -> None:
            if sum(isinstance(each, SetSnapshotRefUpdate) for each in updates) > 1:
                raise CommitFailedException("one at a time")

        (failure,) = probe(Lax(real, before=refuse).client(), "ns").failures
        assert failure.startswith("the catalog takes no request that moves main and another branch together: ")

    def test_names_a_catalog_whose_refusals_look_like_mistakes_of_ours(self, real: SqlCatalog) -> None:
        class Rude(Lax):
            def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
                try:
                    return super().commit_table(table, requirements, updates)
                except CommitFailedException as refusal:
                    raise BadRequestError(str(refusal)) from refusal

        found = probe(Rude(real).client(), "ns").failures
        assert len(found) == 6
        assert all(" a bad one instead of a conflict: " in failure for failure in found)

    @pytest.mark.parametrize("number", [*range(1, 9), 10])
    def test_leaves_nothing_behind_whichever_request_gets_no_answer(self, real: SqlCatalog, number: int) -> None:
        """Whatever a catalog did not answer says nothing about what it enforces."""
        CatalogClient(real).pyiceberg.create_namespace("theirs")
        lax = Lax(real)

        def fail(_: tuple[Any, ...]) -> None:
            if len(lax.sent) == number:
                raise requests.ReadTimeout("slow")

        lax.before = fail
        with pytest.raises(OutcomeUnknown):
            probe(lax.client(), "ns")
        assert names_in(CatalogClient(real), "ns") == []

    def test_drops_the_namespace_that_was_made_for_it(self, real: SqlCatalog) -> None:
        assert probe(CatalogClient(real), "new").keeps_fences
        assert not has_namespace(CatalogClient(real), "new")
        assert has_namespace(CatalogClient(real), "ns")
