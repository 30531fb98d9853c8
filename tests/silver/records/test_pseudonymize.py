"""Tests the pseudonyms that replace a person in messages, and who can be erased; without Java."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topic import declared

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import load_topics
from lakehouse.erasure.person import subject
from pulsar_spark.errors import SettingsError
from silver.records.payload import rewritten
from silver.records.pseudonymize import mentions, pseudonym

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


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ('{"userId": 42, "itemId": 1}', True),
        ('{\\"userId\\": 42}', True),
        ('["(userId#123L = 42)"]', True),
        ('{"userId": "42"}', True),
        ('{"userId": 421}', False),
        ('{"userId": -42}', False),
        ('{"userId": 1, "itemId": 42}', False),
        ('{"otherId": 42}', False),
    ],
)
def test_a_text_mentions_a_key_only_in_a_field_that_names_people(text: str, is_meant: bool) -> None:
    assert bool(re.search(mentions(["userId"], ["42"]), text)) == is_meant


def test_a_pseudonym_has_the_type_of_the_key_and_depends_on_the_secret(tmp_path: Path) -> None:
    text = SHOP_TOPICS.read_text()
    for kind, pattern in (
        ("long", r"-\d{1,19}"),
        ("int", r"-\d{1,10}"),
        ("string", "forgotten-.*"),
    ):
        own = text.replace('id = "long"', f'id = "{kind}"', 1).replace(
            'merged_into = "parentUserId"', ""
        )
        topic = declared(tmp_path, own).topics["users"]
        found = pseudonym(b"one", topic, "42")
        assert re.fullmatch(pattern, found)
        assert found == pseudonym(b"one", topic, "42")
        assert len({found, pseudonym(b"two", topic, "42"), pseudonym(b"one", topic, "43")}) == 3
        if kind != "string":
            least = -(2**63) if kind == "long" else -(2**31)
            assert least <= int(found) < 0


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        (', personal = "keep"', "", "and a single-field key are: none"),
        ("merged_into", "delete = 'never'\nmerged_into", "has delete = 'never'"),
        (
            '"parentUserId"\npartitions = 2',
            "\"parentUserId\"\nenvelope = 'debezium'",
            "has envelope",
        ),
        ("merged_into", "schema = 'registry'\nmerged_into", "merged_into and schema = 'reg"),
        (
            'key = ["invoiceId"',
            'schema = "registry"\nkey = ["invoiceId"',
            "'orders'.*are not JSON",
        ),
        (
            'itemName = "string"',
            'itemName = { type = "string", personal = "keep" }',
            "'itemName' is personal and required. Declare it required = false",
        ),
    ],
)
def test_declarations_that_prevent_erasure_are_refused_by_name(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    topics = declared(tmp_path, SHOP_TOPICS.read_text().replace(was, becomes))
    with pytest.raises(SettingsError, match=says):
        subject(topics, None)


def test_the_shops_people_are_its_users() -> None:
    topics = load_topics(SHOP_TOPICS)
    assert subject(topics, None) == subject(topics, "users") == topics.topics["users"]
    with pytest.raises(SettingsError, match=r"--topic is items.*: users\. Declare"):
        subject(topics, "items")
