"""What is rehearsed is what is then done, upon any catalog; and nothing is done by it."""

import pytest

from catalog import (
    BranchesRefused,
    CatalogClient,
    Column,
    Contract,
    DryRun,
    Partition,
    Rule,
    Sort,
    TableSpec,
    TableState,
    apply,
    create_table,
    ensure_namespace,
    has_namespace,
    load,
    names_in,
    open_branch,
    plan,
    rehearse,
    set_properties,
)
from tests.services.catalogs import GIVEN, NAMESPACE, WITHOUT_GATE

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")


def shape(state: TableState) -> tuple[object, ...]:
    # Some catalogs write down what holds anyway.
    told = {key: text for key, text in state.properties.items() if key != "write.parquet.compression-codec"}
    return state.columns, state.partitions, state.sort, told, state.schema_id, state.format_version


def changed(lake: CatalogClient, name: str, other: str) -> tuple[TableState, TableState]:
    """A table that is there, and one that is not."""
    place = Column("place", "struct<lat: double>")
    set_properties(lake, name, {"owner": "me"})
    for columns in ((place,), (Column("place", "struct<lat: double, lon: double>"), Column("n", "int"))):
        found = plan(load(lake, name), TableSpec(name, columns, (Partition("site"),)), Contract(partitions=Rule.EVOLVE))
        apply(lake, name, found)
    create_table(lake, TableSpec(other, (Column("n", "int"), place), (Partition("n", "bucket[4]"),), (Sort("n"),)))
    apply(lake, other, plan(load(lake, other), TableSpec(other, (Column("n", "long"),))))
    return load(lake, name), load(lake, other)


class TestRehearsal:
    def test_shows_what_is_then_done(self, lake: CatalogClient, name: str, unmade: str) -> None:
        other, stage = f"{unmade}o", DryRun()
        before, there = load(lake, name), names_in(lake, NAMESPACE)
        rehearsed = changed(rehearse(lake, stage), name, other)
        assert load(lake, name) == before
        assert names_in(lake, NAMESPACE) == there
        assert {other, name} <= {*names_in(rehearse(lake, stage), NAMESPACE)}
        assert [shape(each) for each in changed(lake, name, other)] == [shape(each) for each in rehearsed]
        said = [str(change) for change in stage.tables[name].changes]
        assert said == ["+ place struct<lat: double, lon: double>", "+ n int", "~ partitions [] -> [site]"]
        assert stage.tables[name].properties == {"owner": "me"}
        assert stage.tables[other].before is None

    def test_creates_no_namespace(self, lake: CatalogClient, unmade: str) -> None:
        stage = DryRun()
        ensure_namespace(rehearse(lake, stage), unmade.replace(".", "_"))
        assert [*stage.namespaces] == [unmade.replace(".", "_")]
        assert names_in(rehearse(lake, stage), unmade.replace(".", "_")) == []
        assert not has_namespace(lake, unmade.replace(".", "_"))

    def test_commits_no_rows(self, lake: CatalogClient, name: str) -> None:
        with pytest.raises(BranchesRefused, match="a dry run commits no rows: add-snapshot"):
            open_branch(rehearse(lake, DryRun()), name, "b")
        assert load(lake, name).refs == {}
