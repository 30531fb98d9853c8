"""Tests how payloads become JSON text, and how a JSON object is reduced to some fields."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from lake.topics.field_type import FieldType, field_type
from lake.topics.nested import Tree
from silver.records.payload import rewritten

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=5,
)


PLAIN = {name: FieldType("string") for name in ("a", 'c"\\', "who", "price")}


def tree(*names: str) -> Tree:
    return {name: PLAIN[name] for name in names}


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", 'c"\\', "who"]), JSON), st.booleans())
def test_a_message_keeps_declared_fields_and_gets_the_pseudonym(
    fields: dict[str, object], ascii_only: bool
) -> None:
    fields["who"] = 42
    payload = json.dumps(fields, ensure_ascii=ascii_only, indent=1).encode()
    kept = tree("a", 'c"\\', "who")
    found = json.loads(rewritten(payload, kept, {("who",): {"42": "-7"}}))
    assert found == {**{n: v for n, v in fields.items() if n != "b"}, "who": -7}
    assert json.loads(rewritten(payload, tree("who"), {("who",): {"43": "-7"}})) == {"who": 42}


def test_numbers_keep_their_digits_and_the_last_of_two_equal_fields_counts() -> None:
    payload = b'{"price": 13.750000000000002, "who": "x", "price" : 1.50E+2, "who": "42"}'
    assert (
        rewritten(payload, tree("price", "who"), {("who",): {"42": "forgotten-1"}})
        == b'{"price":1.50E+2,"who":"forgotten-1"}'
    )


def test_nothing_is_kept_of_an_object_but_what_is_declared_in_it() -> None:
    kept: Tree = {
        "by": {"user": {"id": FieldType("string")}, "at": FieldType("long")},
        "lines": field_type("array<struct<sku: string, n: double, parts: array<long>>>"),
        "more": field_type("map<string, struct<a: long>>"),
        "one": field_type("struct<x: struct<y: long>>"),
        "other": {"in": FieldType("long")},
    }
    payload = {
        "by": {"user": {"id": "u1", "name": "Ada"}, "at": 1, "x": "Ada"},
        "lines": [{"sku": "s", "for": "Ada"}, None, {"parts": [1, None], "n": 1.5}],
        "more": {"k": {"a": 1, "b": "Ada"}, "none": None},
        "one": {"x": {"y": 1, "z": "Ada"}, "z": "Ada"},
        "other": "Ada",
        "Ada": "Ada",
    }
    text = rewritten(json.dumps(payload).encode(), kept, {("by", "user", "id"): {"u1": "p1"}})
    assert json.loads(text) == {
        "by": {"user": {"id": "p1"}, "at": 1},
        "lines": [{"sku": "s"}, None, {"parts": [1, None], "n": 1.5}],
        "more": {"k": {"a": 1}, "none": None},
        "one": {"x": {"y": 1}},
        "other": None,
    }
