"""Tests how payloads become JSON text, and how a JSON object is reduced to some fields."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from silver.records.payload import rewritten

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", 'c"\\', "who"]), JSON), st.booleans())
def test_a_message_keeps_declared_fields_and_gets_the_pseudonym(
    fields: dict[str, object], ascii_only: bool
) -> None:
    fields["who"] = 42
    payload = json.dumps(fields, ensure_ascii=ascii_only, indent=1).encode()
    found = json.loads(rewritten(payload, ["a", 'c"\\', "who"], {"who": {"42": "-7"}}))
    assert found == {**{n: v for n, v in fields.items() if n != "b"}, "who": -7}
    assert json.loads(rewritten(payload, ["who"], {"who": {"43": "-7"}})) == {"who": 42}


def test_numbers_keep_their_digits_and_the_last_of_two_equal_fields_counts() -> None:
    payload = b'{"price": 13.750000000000002, "who": "x", "price" : 1.50E+2, "who": "42"}'
    assert (
        rewritten(payload, ["price"], {"who": {"42": "forgotten-1"}})
        == b'{"price":1.50E+2,"who":"forgotten-1"}'
    )
