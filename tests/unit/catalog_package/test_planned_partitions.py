"""What a plan makes of partitions: refused, followed, or no difference."""

import pytest

from catalog import Column, Contract, Partition, Plan, Rule, plan, same_partitions
from catalog.contracts import FOLLOW
from tests.services.schemas import spec_of, table_of
from tests.unit.catalog_package.plans import columns, planned

THERE = (Partition.parse("day(ts)"), Partition.parse("site"))


def laid_out(*wanted: str, contract: Contract = FOLLOW) -> Plan:
    types = {"ts": "timestamptz", "site": "string", "n": "long", "f": "double", "in": "struct<ts: date>"}
    there = table_of(columns(types), partitions=THERE, former=(Partition("n", "truncate[4]"),))
    spec = spec_of(Column("late", "date"), partitions=tuple(map(Partition.parse, wanted)))
    return plan(there, spec, contract)


class TestLayout:
    def test_of_another_kind_is_refused_and_both_are_shown(self) -> None:
        assert not laid_out("day(ts)", "site").objections
        assert not laid_out("site", "day(ts)").objections
        found = laid_out("hour(ts)")
        assert found.objections[0].startswith("the table n.t is partitioned by [day(ts), site], not by [hour(ts)]: ")
        assert not plan(table_of(columns({"ts": "date"}), partitions=THERE), spec_of(Column("ts", "date"))).objections

    def test_that_is_there_is_not_judged(self) -> None:
        """Iceberg's builders would make none with both day and hour of one column; others may have."""
        odd = tuple(map(Partition.parse, ("day(ts)", "hour(ts)")))
        there = table_of(columns({"ts": "timestamptz"}), partitions=odd)
        assert not plan(there, spec_of(Column("ts", "timestamptz"), partitions=odd)).objections

    def test_follows_where_partitions_evolve(self) -> None:
        evolve = Contract(partitions=Rule.EVOLVE)
        wanted = ("hour(ts)", "site", "bucket(16, n)", "truncate(4, n)", "void(f)", "year(late)", "month(in.ts)")
        found = laid_out(*wanted, contract=evolve)
        assert [str(change) for change in found.changes] == [
            "+ late date",
            f"~ partitions [day(ts), site] -> [{', '.join(wanted)}]",
        ]


class TestPartition:
    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            (["day(nowhere)"], "names nowhere"),
            (["day(site)"], "can't be computed from site, which is string"),
            (["bucket(4, f)"], "can't be computed from f"),
            (["in"], "can't be computed from in, which is a struct"),
            (["site", "site as s"], "appears twice"),
            (["day(ts)", "hour(ts)"], "repeats"),
            (["day(ts) as site"], "day(ts) as site can't be named site, as a column is: give it another name"),
            (["n as in.ts"], "can't be named in.ts, as a column is"),
            (["n as late"], "can't be named late, as a column is"),
            (["n as p", "site as p"], "site as p can't be named p, as another one is"),
            (["n as ts_day"], "n as ts_day can't be named ts_day, as day(ts) is or was"),
            (["n as n_trunc"], "n as n_trunc can't be named n_trunc, as truncate(4, n) is or was"),
        ],
    )
    def test_that_cannot_be_is_refused(self, wanted: list[str], reason: str) -> None:
        for contract in (Contract(), Contract(partitions=Rule.EVOLVE)):
            found = laid_out(*wanted, contract=contract)
            assert reason in found.objections[0]
            assert [str(change) for change in found.changes] == ["+ late date"]

    @pytest.mark.parametrize(
        ("partition", "said"),
        [
            (
                Partition("n", "bucket[0]"),
                "the partition field bucket(0, n) has the transform bucket[0], and understood are",
            ),
            (Partition("n", "bucket(4)"), "has the transform bucket(4), and understood are"),
            (Partition("n", "bucket[9999999999]"), "and understood are"),
            (Partition("n", "zorder"), "and understood are"),
            (
                Partition("n", name=""),
                'the partition field n as "" has an empty name: give it another one, or leave it out',
            ),
        ],
    )
    def test_that_is_none_is_one_sentence(self, partition: Partition, said: str) -> None:
        found = plan(table_of(columns({"n": "long"})), spec_of(partitions=(partition,)))
        assert said in found.objections[0]

    def test_with_another_name_is_the_same_where_no_name_is_wanted(self) -> None:
        """Nor does a void field too many, which tables of format 1 keep for good."""
        there = tuple(map(Partition.parse, ("bucket(4, n) as p", "void(n) as q", "void(n)", "site")))
        for wanted, same in (
            (("site", "bucket(4, n)"), True),
            (("site as site", "bucket(4, n) as p", "void(n) as q"), True),
            (("site", "bucket(4, n)", "void(n) as r"), False),
            (("site", "bucket(4, n) as n_bucket"), False),
            (("site", "bucket(4, n)", "void(site)"), False),
            (("bucket(4, n)",), False),
        ):
            assert same_partitions(there, tuple(map(Partition.parse, wanted))) is same, wanted

    def test_gives_its_name_to_no_column(self) -> None:
        """Of whatever layout; it alone is left out, and that of a field that is a partition as it is says nothing."""
        there = {"id": "long", "site": "string", "in": "struct<ts: date>"}
        former = (Partition("#9", "identity", "gone"), Partition("in.ts", "day"))
        partitions = (Partition("id", "bucket[4]"), Partition("site"))
        found = planned(
            there,
            {
                "id_bucket": "long",
                "gone": "struct<a: long>",
                "in": "struct<ts: date, ts_day: int, ok: int>",
                "n": "long",
            },
            partitions=partitions,
            former=former,
        )
        assert [str(change) for change in found.changes] == ["+ in.ok int", "+ n long"]
        assert [each.path for each in found.refusals] == ["id_bucket", "gone", "in.ts_day"]
        assert {each.reason for each in found.refusals} == {"a partition field of the table has its name, or had it"}
        assert not planned(there, {"site": "string"}, partitions=partitions).refusals
