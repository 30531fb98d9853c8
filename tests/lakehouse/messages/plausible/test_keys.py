"""Tests how the keys of generated topics are numbered and created."""

from pathlib import Path

import pytest
from topic import declared

from lakehouse.messages.plausible.keys import BEGIN_MS, PERIOD_MS, Keys, stem

TEXT = """
[topics.people]
kind = "changelog"
key = ["id"]
fields = { id = "string" }
[topics.prices]
kind = "changelog"
key = ["shopId", "open"]
fields = { shopId = "string", open = "boolean" }
[topics.days]
kind = "changelog"
key = ["half"]
fields = { half = "boolean" }
[topics.visits]
kind = "events"
key = ["personId", "number"]
fields = { personId = "string", number = "int" }
lookups = { person = { topic = "people", on = "personId" } }
"""


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(declared(tmp_path, TEXT), 1000)


def test_a_key_has_the_name_of_the_first_field_that_refers_to_it(
    keys: Keys, tmp_path: Path
) -> None:
    topics = declared(tmp_path, TEXT).topics
    assert keys.cells(topics["people"], 7) == {"id": "person-7"}
    assert keys.reference("people", "string", 7) == "person-7"
    assert stem("id", "people") == "people"
    assert stem("accountId", "x") == stem("account_key", "x") == "account"


def test_a_key_of_several_fields_is_unique_and_shares_its_first_part(
    keys: Keys, tmp_path: Path
) -> None:
    topics = declared(tmp_path, TEXT).topics
    found = [keys.cells(topics["visits"], number) for number in range(1, 7)]
    assert [row["number"] for row in found] == ["1", "2", "3", "4", "5", "6"]
    assert len({row["personId"] for row in found}) == 2
    prices = [keys.cells(topics["prices"], number) for number in range(1, 101)]
    assert len({row["shopId"] for row in prices}) == 100, "a boolean cannot tell 100 keys apart"


def test_a_type_limits_the_number_of_keys(keys: Keys) -> None:
    assert keys.count_of("people") == 1000
    assert keys.count_of("days") == 2


def test_the_keys_known_at_a_moment_are_those_created_until_then(keys: Keys) -> None:
    for number in (1, 2, 500, 1000):
        created = Keys.created(number, 1000)
        assert keys.known("people", created) == number
        assert keys.known("people", created - 1) == max(number - 1, 1)
    assert keys.known("people", BEGIN_MS - 1) == 1
    assert keys.known("people", BEGIN_MS + PERIOD_MS) == 1000
