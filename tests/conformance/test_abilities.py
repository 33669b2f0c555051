"""What a catalog is said to be unable to do is tried on it, as is all that it is not; so a newer one is noticed."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog import (
    CatalogClient,
    Column,
    Conflict,
    Denied,
    RequestRefused,
    TableSpec,
    append_onto,
    create_table,
    ensure_namespace,
    has_namespace,
    load,
    names_in,
    open_branch,
    probe,
)
from tests.conformance.commits import compact, expire
from tests.conformance.conftest import clear
from tests.conformance.tables import a_view
from tests.services.catalogs import NAMESPACE, VARIABLE, Can, Given, Kind, asked_at
from tests.services.gateway import Gateway

COLUMNS = (Column("id", "long"),)


def nested(lake: CatalogClient, name: str, _: Path) -> bool:
    ensure_namespace(lake, f"{name}.deep")
    return has_namespace(lake, f"{name}.deep")


def placed(lake: CatalogClient, name: str, folder: Path) -> bool:
    return create_table(lake, TableSpec(name, COLUMNS, location=f"file://{folder}/t")).location == f"file://{folder}/t"


def placed_by_its_namespace(lake: CatalogClient, name: str, folder: Path) -> bool:
    ensure_namespace(lake, name, location=f"file://{folder}")
    return str(folder) in create_table(lake, TableSpec(f"{name}.t", COLUMNS)).location


def branched_first(lake: CatalogClient, name: str, _: Path) -> bool:
    create_table(lake, TableSpec(name, COLUMNS))
    return "ours" in open_branch(lake, name, "ours").refs


def cut(lake: CatalogClient, name: str, _folder: Path) -> bool:
    create_table(lake, TableSpec(name, COLUMNS))
    append_onto(lake, name, [{"id": 1}], lambda _: {})
    for _ in range(2):
        compact(lake, name)
    try:
        expire(lake, name)
    except AssertionError:
        return False
    return True


def viewed(lake: CatalogClient, name: str, _: Path) -> bool:
    a_view(lake, name)
    return lake.pyiceberg.view_exists(name)


def kept_here(lake: CatalogClient, name: str, _: Path) -> bool:
    made = create_table(lake, TableSpec(name, COLUMNS))
    return Path(re.sub("^file:(//)?", "", made.metadata_location)).exists()


def of_format(version: int) -> Callable[[CatalogClient, str, Path], bool]:
    def made(lake: CatalogClient, name: str, _: Path) -> bool:
        create_table(lake, TableSpec(name, COLUMNS, properties={"format-version": str(version)}))
        return load(lake, name).format_version == version

    return made


TRIES: dict[Can, Callable[[CatalogClient, str, Path], bool]] = {
    Can.NESTED: nested,
    Can.PLACES: placed,
    Can.NAMESPACE_PLACES: placed_by_its_namespace,
    Can.BRANCH_FIRST: branched_first,
    Can.CUTS: cut,
    Can.VIEWS: viewed,
    Can.LOCAL_FILES: kept_here,
    Can.OLD_FORMATS: of_format(1),
    Can.NEW_FORMATS: of_format(3),
}


class TestCatalog:
    @pytest.mark.parametrize("can", Can)
    def test_can_do_all_but_what_it_declares_missing(
        self, kind: Kind, lake: CatalogClient, unmade: str, can: Can, warehouse: Path
    ) -> None:
        try:
            able = TRIES[can](lake, unmade, warehouse / f"place-of-{can.name}")
        except (Conflict, Denied, RequestRefused) as refusal:
            able, said = False, str(refusal)
        else:
            said = "it was tried"
        assert able is (can not in kind.cannot), f"{kind.name} {'can' if able else 'can not'}: {can} ({said})"

    def test_given_by_the_environment_is_opened_and_left_as_it_was(self, rest_uri: str) -> None:
        with Gateway(rest_uri) as gateway:
            told = {"URI": gateway.uri, "CREDENTIAL": gateway.credential, "PROPERTIES": json.dumps(asked_at(gateway))}
            environment = {
                f"{VARIABLE}{key}": text for key, text in {**told, "CANNOT": "namespace places, views"}.items()
            }
            kind = Given({**environment, "HOME": "/"})
            with kind.opened() as lake:
                ensure_namespace(lake, "given.deep")
                create_table(lake, TableSpec("given.deep.t", COLUMNS))
                append_onto(lake, "given.deep.t", [{"id": 1}], lambda _: {})
                clear(lake, ("given",))
                assert not has_namespace(lake, "given")
        assert gateway.seen["token"]
        assert kind.cannot == {Can.NAMESPACE_PLACES, Can.VIEWS}


class TestProbe:
    """Rule 7."""

    def test_finds_every_ability_that_landing_needs(self, lake: CatalogClient) -> None:
        before = {*names_in(lake, NAMESPACE)}
        assert probe(lake, NAMESPACE).failures == (), before
        assert {*names_in(lake, NAMESPACE)} == before

    def test_uses_a_namespace_that_goes_away_again(self, lake: CatalogClient) -> None:
        assert probe(lake, "lakehouse_probed").keeps_fences
        assert not has_namespace(lake, "lakehouse_probed")
