"""Laws of the plan: whatever data comes, and in whatever order it does."""

from collections.abc import Iterable, Sequence
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from catalog import Add, Column, Contract, Describe, Fate, Fill, Plan, Relax, Rule, Widen, evolved, plan
from catalog.conversions import schema_of
from catalog.fields import parts_of, paths_in, struct_of
from catalog.type_widening import Relation, relation
from tests.services.schemas import any_columns, arrivals, spec_of, table_of

NO_LIMITS = Contract(max_columns=None, max_depth=None)
CONTRACTS = st.builds(
    Contract,
    rule=st.sampled_from(Rule),
    columns=st.dictionaries(st.sampled_from(["a", "b", "a.b", "a.element"]), st.sampled_from(Rule), max_size=2),
    max_columns=st.sampled_from([None, 3, 8]),
    max_depth=st.sampled_from([None, 2, 4]),
)


def planned(there: Sequence[Column], wanted: Iterable[Column], contract: Contract = NO_LIMITS) -> Plan:
    return plan(table_of(there, format_version=3), spec_of(*wanted), contract)


def after(there: Sequence[Column], *batches: Iterable[Column], contract: Contract = NO_LIMITS) -> tuple[Column, ...]:
    for batch in batches:
        there = evolved(there, planned(there, batch, contract).changes)
    return tuple(there)


def kinds(columns: Sequence[Column]) -> dict[str, str]:
    """Each path with its type; of what has parts only which kind it is."""
    return {".".join(path): str(kind).partition("<")[0] for path, kind in parts_of(struct_of(columns), ())}


class TestSchemaPlan:
    @given(st.lists(any_columns(), max_size=3), any_columns(), CONTRACTS)
    def test_needs_no_second_one(
        self, there: list[tuple[Column, ...]], wanted: tuple[Column, ...], contract: Contract
    ) -> None:
        now = after(after((), *there), wanted, contract=contract)
        again = planned(now, wanted, contract)
        assert not again.changes
        assert all(each.fate in {Fate.FITS, Fate.SET_ASIDE, Fate.REFUSE} for each in again.verdicts)

    @given(st.lists(any_columns(), min_size=1, max_size=3), any_columns(), CONTRACTS)
    def test_drops_narrows_moves_and_requires_nothing(
        self, there: list[tuple[Column, ...]], wanted: tuple[Column, ...], contract: Contract
    ) -> None:
        before = after((), *there)
        now = after(before, wanted, contract=contract)
        assert [column.name for column in now][: len(before)] == [column.name for column in before]
        new = dict(parts_of(struct_of(now), ()))
        for path, kind in parts_of(struct_of(before), ()):
            assert path in new
            if not hasattr(kind, "fields") and "<" not in str(kind):
                assert relation(kind, new[path]) in {Relation.SAME, Relation.WIDER}
        assert not any(column.required for column in now[len(before) :])
        assert all(old.required or not new.required for old, new in zip(before, now, strict=False))

    @given(st.lists(any_columns(), min_size=1, max_size=4), CONTRACTS)
    def test_yields_a_schema_that_iceberg_accepts(self, batches: list[tuple[Column, ...]], contract: Contract) -> None:
        now = after((), *batches, contract=contract)
        if now:
            schema = schema_of(spec_of(*now))
            assert len(schema.field_ids) == len(set(schema.field_ids))

    @given(arrivals())
    def test_yields_the_same_schema_in_any_order_of_arrival(self, batches: list[tuple[Column, ...]]) -> None:
        """As a set of paths and types: columns stand in the order in which they came."""
        outcomes = [kinds(after((), *order)) for order in permutations(batches)]
        assert all(each == outcomes[0] for each in outcomes)
        for batch in batches:
            assert not planned(after((), *batches), batch).refusals

    @given(any_columns(), any_columns(), CONTRACTS)
    def test_has_a_verdict_for_every_wanted_field(
        self, there: tuple[Column, ...], wanted: tuple[Column, ...], contract: Contract
    ) -> None:
        """Its own, or that of what it is in."""
        found = planned(after((), there), wanted, contract)
        told = {verdict.path for verdict in found.verdicts}
        for path in paths_in(struct_of(wanted), ()):
            assert told & {".".join(path[:end]) for end in range(1, len(path) + 1)}, path
        assert not [each for each in found.refusals if not each.reason]
        assert all(found.covers(change) for change in found.changes)


class TestContract:
    @given(any_columns(), any_columns(), st.sampled_from(Rule))
    def test_allows_no_more_than_its_rule(
        self, there: tuple[Column, ...], wanted: tuple[Column, ...], rule: Rule
    ) -> None:
        found = planned(after((), there), wanted, Contract(rule))
        allowed = {Rule.EVOLVE: {Add, Widen, Relax, Describe, Fill}, Rule.WIDEN: {Widen, Relax}}.get(rule, set())
        assert {type(change) for change in found.changes} <= allowed
        asides = [each for each in found.refusals if each.fate is Fate.SET_ASIDE]
        assert not (rule is Rule.REFUSE and [each for each in asides if "twice" not in each.reason])

    @given(st.lists(any_columns(), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 5), st.integers(1, 3))
    def test_keeps_its_limits(self, batches: list[tuple[Column, ...]], columns: int, depth: int, new: int) -> None:
        contract = Contract(max_columns=columns, max_depth=depth, max_new=new)
        there: tuple[Column, ...] = ()
        for batch in batches:
            now = after(there, batch, contract=contract)
            before, fields = len(list(paths_in(struct_of(there), ()))), list(paths_in(struct_of(now), ()))
            assert len(fields) <= columns
            assert len(fields) - before <= new
            assert all(len(path) <= depth for path, _ in parts_of(struct_of(now), ()))
            there = now
