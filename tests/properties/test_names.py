"""Names from the outside: whatever comes, a name that every reader takes, and never that of another column."""

from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.schema.columns import TAKEN, ColumnPlan, from_table, named
from lakehouse_ingest.schema.names import LONGEST, RESERVED, apart, meets, readable, told_apart

ANY = (
    st.text(max_size=150)
    | st.text("aA_ .-1é", max_size=5)
    | st.sampled_from([*RESERVED, "", "\0", "\ud800", "9", "😀"])
)


class TestReadableName:
    @given(ANY, st.booleans())
    def test_is_an_identifier_of_bounded_length_and_not_reserved(self, outside: str, ascii_only: bool) -> None:  # noqa: FBT001
        name = readable(outside, ascii_only=ascii_only)
        assert name.isidentifier()
        assert 1 <= len(name) <= LONGEST
        assert name.casefold() not in RESERVED
        assert name.isascii() or not ascii_only

    @given(ANY, st.booleans())
    def test_stays_as_it_is(self, outside: str, ascii_only: bool) -> None:  # noqa: FBT001
        name = readable(outside, ascii_only=ascii_only)
        assert readable(name, ascii_only=ascii_only) == name

    @given(ANY)
    def test_with_a_suffix_is_readable_distinct_and_stable(self, outside: str) -> None:
        name = readable(outside)
        told = apart(name, outside)
        assert told == apart(name, outside) == readable(told)
        assert told_apart(outside, ()) == name
        assert not meets(told_apart(outside, {name.casefold()}), [name])
        assert not meets(told_apart(outside, {name.casefold(), told.casefold()}), [name, told])


class TestFieldNames:
    @given(st.lists(ANY, unique=True, max_size=30), st.lists(st.text("abAB_", min_size=1, max_size=3)))
    def test_never_collide_and_lead_back_to_their_fields(self, fields: list[str], taken: list[str]) -> None:
        columns, refused = named((ColumnPlan(field, field, "long") for field in fields), taken, 1_000, refuse=False)
        names = [column.name.casefold() for column in columns]
        assert refused == ()
        assert len(set(names)) == len(fields)
        assert not set(names) & {name.casefold() for name in (*TAKEN, *taken)}
        assert [from_table(each.name, each.iceberg, each.doc, required=False).field for each in columns] == fields

    @given(st.lists(ANY, unique=True, max_size=30))
    def test_that_collide_are_refused_where_that_is_set(
        self,
        fields: list[str],
    ) -> None:
        columns, refused = named((ColumnPlan(field, field, "long") for field in fields), (), 1_000, refuse=True)
        assert [column.name for column in columns] == [readable(column.field) for column in columns]
        assert sorted([*(column.field for column in columns), *(each.name for each in refused)]) == sorted(fields)
