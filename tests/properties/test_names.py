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


@given(ANY, st.booleans())
def test_a_name_is_an_identifier_not_too_long_and_not_reserved(outside: str, ascii_only: bool) -> None:  # noqa: FBT001
    name = readable(outside, ascii_only=ascii_only)
    assert name.isidentifier()
    assert 1 <= len(name) <= LONGEST
    assert name.casefold() not in RESERVED
    assert name.isascii() or not ascii_only


@given(ANY, st.booleans())
def test_a_readable_name_stays_as_it_is(outside: str, ascii_only: bool) -> None:  # noqa: FBT001
    name = readable(outside, ascii_only=ascii_only)
    assert readable(name, ascii_only=ascii_only) == name


@given(ANY)
def test_a_name_told_apart_is_readable_and_another_one_and_always_the_same(outside: str) -> None:
    name = readable(outside)
    told = apart(name, outside)
    assert told == apart(name, outside) == readable(told)
    assert told_apart(outside, ()) == name
    assert not meets(told_apart(outside, {name.casefold()}), [name])
    assert not meets(told_apart(outside, {name.casefold(), told.casefold()}), [name, told])


@given(st.lists(ANY, unique=True, max_size=30), st.lists(st.text("abAB_", min_size=1, max_size=3)))
def test_fields_of_one_table_never_meet_and_each_is_found_again_by_its_column(
    fields: list[str], taken: list[str]
) -> None:
    columns, refused = named((ColumnPlan(field, field, "long") for field in fields), taken, 1_000, refuse=False)
    names = [column.name.casefold() for column in columns]
    assert refused == ()
    assert len(set(names)) == len(fields)
    assert not set(names) & {name.casefold() for name in (*TAKEN, *taken)}
    assert [from_table(each.name, each.iceberg, each.doc, required=False).field for each in columns] == fields


@given(st.lists(ANY, unique=True, max_size=30))
def test_where_names_that_meet_are_refused_every_field_is_a_column_by_the_plain_rule_or_refused(
    fields: list[str],
) -> None:
    columns, refused = named((ColumnPlan(field, field, "long") for field in fields), (), 1_000, refuse=True)
    assert [column.name for column in columns] == [readable(column.field) for column in columns]
    assert sorted([*(column.field for column in columns), *(each.name for each in refused)]) == sorted(fields)
