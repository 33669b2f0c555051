"""A type's text and the type are two spellings of one thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.typenames import bare, canonical, parse_type, type_text

PRIMITIVES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "string",
    "uuid",
    "binary",
    "fixed[16]",
    "decimal(10,2)",
]
names = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True),
    st.sampled_from(["struct", "list", "decimal", "größe"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _parts(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(types, types.map("required {}".format))


def _structs(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    docs = st.one_of(st.just(""), st.text(st.characters(codec="utf-8"), max_size=8).map(lambda doc: f" {_quoted(doc)}"))
    fields = st.lists(st.tuples(names, _parts(types), docs), max_size=3, unique_by=lambda field: field[0])
    return fields.map(
        lambda found: f"struct<{', '.join(f'{_quoted(name)}: {text}{doc}' for name, text, doc in found)}>"
    )


texts = st.recursive(
    st.sampled_from(PRIMITIVES),
    lambda types: st.one_of(
        _parts(types).map("list<{}>".format),
        st.tuples(types, _parts(types)).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        _structs(types),
    ),
    max_leaves=8,
)


class TestTypeText:
    @given(texts)
    def test_survives_parsing_and_printing(self, text: str) -> None:
        parsed = parse_type(text)
        assert parse_type(type_text(parsed)) == parsed
        assert canonical(canonical(text)) == canonical(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("decimal( 10 , 2 )", "decimal(10,2)"),
            (" struct<lat:double,tags : list< string >> ", "struct<lat: double, tags: list<string>>"),
            (
                'struct<"a b": long, "say ""x""": int, "plain": int>',
                'struct<"a b": long, "say ""x""": int, plain: int>',
            ),
            ("map<string,list<long>>", "map<string, list<long>>"),
            ("struct<>", "struct<>"),
            (
                'struct< required : required   int  "the ""x""" , b: list<required long>>',
                'struct<required: required int "the ""x""", b: list<required long>>',
            ),
        ],
    )
    def test_has_one_canonical_form(self, text: str, expected: str) -> None:
        assert canonical(text) == expected

    def test_without_details_has_neither_required_nor_comments(self) -> None:
        assert bare('map<string, required struct<a: required long "why", b: list<required int>>>') == (
            "map<string, struct<a: long, b: list<int>>>"
        )
        assert bare('struct<"a":long>') == 'struct<"a":long>'

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "lang",
            "list",
            "list<>",
            "list<long",
            "list<long>>",
            "map<long>",
            "struct<a>",
            "struct<a: long,>",
            "decimal(99,2)",
            "decimal",
            "long x",
            "struct<a: long?>",
            "required long",
            "struct<a: required>",
            "struct<a: required required long>",
            'list<long "why">',
            "map<required string, long>",
        ],
    )
    def test_that_names_no_iceberg_type_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="Iceberg type"):
            parse_type(text)
