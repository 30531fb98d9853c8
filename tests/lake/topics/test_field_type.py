"""Tests how types are written in a topic file."""

import pytest

from lake.topics.field_type import FieldType, column_type, field_type


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("float", "float"),
        ("decimal(12, 2)", "decimal(12,2)"),
        ("array<long>", "array<long>"),
        (" map< string ,date > ", "map<string, date>"),
        ("struct<a:int,bC : array<string>>", "struct<a: int, bC: array<string>>"),
        (
            "array<struct<price: decimal(10,2), tags: map<string, array<timestamp_ms>>>>",
            "array<struct<price: decimal(10,2), tags: map<string, array<timestamp_ms>>>>",
        ),
        ("struct<map: string, array: int>", "struct<map: string, array: int>"),
    ],
)
def test_a_type_has_one_text(text: str, canonical: str) -> None:
    assert str(field_type(text)) == canonical
    assert str(field_type(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a type"),
        ("text", "use one of boolean, int, long, float, double"),
        ("decimal(39,2)", "is not a type"),
        ("decimal(2,3)", "is not a type"),
        ("array", "is not a type"),
        ("array<>", "is not a type"),
        ("array<long", "is not a type"),
        ("array<long>>", "is not a type"),
        ("array<long> long", "is not a type"),
        ("array<decimal(10,2)>", "decimals directly in an array, where their digits"),
        ("map<string, decimal(10,2)>", "decimals directly in a map"),
        ("map<long, string>", "because the keys of a map are strings"),
        ("map<string>", "is not a type"),
        ("struct<>", "'>' cannot be the name of a member"),
        ("struct<a>", "is not a type"),
        ("struct<a: int, aB: int, a_b: int>", "has the member 'a_b' twice"),
        ("struct<1a: int>", "'1a' cannot be the name of a member"),
        ("struct<a.b: int>", "is not a type"),
        ("array<" * 12 + "long" + ">" * 12, "more than 10 types within one another"),
    ],
)
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=".") as error:
        field_type(text)
    assert says in str(error.value)


def test_scalars_have_the_names_that_they_follow_in_json() -> None:
    text = (
        "struct<a: array<string>, m: map<string, struct<b: int>>, n: array<array<long>>, d: date>"
    )
    assert [*field_type(text).scalars("f")] == [
        ("a", "array", FieldType("string")),
        ("b", None, FieldType("int")),
        ("", "array", FieldType("long")),
        ("d", None, FieldType("date")),
    ]
    assert [*field_type("map<string, date>").scalars("f")] == [("f", "map", FieldType("date"))]
    assert [*field_type("long").scalars("f")] == [("f", None, FieldType("long"))]


def test_the_ddl_names_members_as_in_json_and_columns_as_in_silver() -> None:
    kind = field_type("struct<aB: long, at: array<timestamp_ms>, m: map<string, struct<c: int>>>")
    assert kind.ddl(str) == (
        "struct<`aB`:long,`at`:array<timestamp_ms>,`m`:map<string,struct<`c`:int>>>"
    )
    assert column_type(kind) == (
        "struct<a_b:bigint,at:array<timestamp>,m:map<string,struct<c:int>>>"
    )
