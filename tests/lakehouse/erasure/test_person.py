"""Tests who can be erased. That all messages of a person are found is tested with the erasure."""

from pathlib import Path

import pytest
from topic import declared

from lake.settings.settings import SHOP_TOPICS, load_settings
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.erasure.person import Person, check_key, referring, required_secret, subject
from pulsar_spark.errors import SettingsError


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


@pytest.mark.parametrize("key", ["", "01", "-1", "1.0", "x", "1" * 19])
def test_a_text_that_is_no_key_is_refused(key: str) -> None:
    users = load_topics(SHOP_TOPICS).topics["users"]
    with pytest.raises(SettingsError, match="is not a valid key of the topic 'users'.*type long"):
        check_key(users, key)
    check_key(users, "0")
    check_key(users, "987654321987")


def test_a_person_has_the_keys_of_all_accounts_and_the_values_of_all_fields() -> None:
    topics = load_topics(SHOP_TOPICS)
    values = {"firstName": {"Zoe"}, "emailAddress": {"b@x", "a@x", "Zoe"}}
    person = Person(topics.topics["users"], {"4": "-1", "11": "-2"}, values)
    assert (person.keys, person.texts) == ([4, 11], ["Zoe", "a@x", "b@x"])
    assert [topic.name for topic in referring(topics.topics["users"], topics)] == ["orders"]


def test_a_secret_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No pseudonym secret is set.*SECRET_FILE"):
        required_secret(Lake(load_settings(home=tmp_path)))
