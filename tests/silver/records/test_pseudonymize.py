"""Tests the pseudonyms that replace a person in messages."""

import re
from pathlib import Path

import pytest
from topic import declared

from lake.settings.settings import SHOP_TOPICS
from silver.records.pseudonymize import mentions, pseudonym


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
