"""Tests by which fields lookups go, and which are refused."""

from pathlib import Path

import pytest
from topic import declared, write

from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

TOPICS = """
[topics.districts]
kind = "changelog"
key = ["country", "code"]
history = true
[topics.districts.fields]
country = "string"
code = "int"
mayor = {{ type = "string", required = false{personal} }}

[topics.accounts]
kind = "changelog"
key = ["id"]
history = true
[topics.accounts.fields]
id = "int"
country = "string"
districtCode = "int"
secret = {{ type = "string", personal = "mask" }}
tags = "array<string>"

[topics.payments]
kind = "events"
key = ["id"]
event_time = "at"
[topics.payments.fields]
id = "int"
account = "int"
country = "string"
code = "int"
at = "timestamp"
[topics.payments.lookups]
{lookups}
"""
ACCOUNT = 'owner = { topic = "accounts", on = "account" }\n'
PLAIN = TOPICS.replace(', personal = "mask"', "")
CHAIN = 'place = { topic = "districts", on = ["owner.country", "owner.districtCode"] }\n'


@pytest.mark.parametrize(
    ("lookups", "says"),
    [
        ("place = { topic = 'districts', on = 'country' }", "in this order: 'country', 'code'"),
        ("owner = { topic = 'accounts', on = ['account', 'code'] }", "in this order: 'id'"),
        ("owner = { topic = 'accounts', on = [] }", ":33: topics.payments.lookups.owner.on: must"),
        ("owner = { topic = 'accounts', on = 'a.b.c' }", "on: 'a.b.c' is neither the name of a fi"),
        ("owner = { topic = 'accounts', on = 'acount' }", "names 'acount', which is not among its"),
        (CHAIN, "goes by 'owner.country', but 'owner' is no lookup of the topic; for members"),
        (ACCOUNT + CHAIN.replace("owner.country", "owner.town"), "'accounts' has no field 'town'"),
        (ACCOUNT + CHAIN.replace("owner.country", "owner.tags"), "'owner.tags', which needs a sin"),
        (
            ACCOUNT.replace("}", ", mode = 'as_of' }") + CHAIN,
            "'owner' is 'as_of', whose row may change when an earlier version arrives late; it m",
        ),
        (
            "one = { topic = 'accounts', on = 'other.id' }\n"
            "other = { topic = 'accounts', on = 'one.id' }",
            "of topic 'payments' go through each other in a circle",
        ),
    ],
)
def test_lookups_that_lead_to_no_single_row_are_refused(
    tmp_path: Path, lookups: str, says: str
) -> None:
    path = write(tmp_path, PLAIN.format(lookups=lookups, personal=""))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert str(error.value).startswith(f"{path}:")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "lookups", "says"),
    [
        (TOPICS, f"{ACCOUNT}again = {{ topic = 'accounts', on = 'owner.id' }}", "refers to people"),
        (
            PLAIN,
            "place = { topic = 'districts', on = ['country', 'code'] }",
            "lookup 'place' of topic 'payments' refers to people, so it must go by one field",
        ),
        (
            TOPICS,
            ACCOUNT + CHAIN.replace("owner.country", "owner.secret"),
            "goes by 'owner.secret', which must have personal = 'keep'",
        ),
    ],
)
def test_what_forget_could_not_erase_is_refused(
    tmp_path: Path, text: str, lookups: str, says: str
) -> None:
    personal = ', personal = "keep"' if text == PLAIN else ""
    path = write(tmp_path, text.format(lookups=lookups, personal=personal))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert says in str(error.value)


def test_lookups_come_after_those_that_they_go_through(tmp_path: Path) -> None:
    topics = declared(tmp_path, PLAIN.format(lookups=CHAIN + ACCOUNT, personal=""))
    payments = topics.topics["payments"]
    assert [*payments.lookups] == ["place", "owner"]
    assert [*payments.lookups_in_order] == ["owner", "place"]
    assert payments.referring == ["account"]


def test_a_lookup_may_go_through_two_others_by_fields_of_the_same_name(tmp_path: Path) -> None:
    both = 'place = { topic = "districts", on = ["one.districtCode", "two.districtCode"] }\n'
    two = ACCOUNT.replace("owner", "one") + ACCOUNT.replace("owner", "two")
    topics = declared(tmp_path, PLAIN.format(lookups=both + two, personal=""))
    assert [*topics.topics["payments"].lookups_in_order] == ["one", "two", "place"]
    missing = write(tmp_path, PLAIN.format(lookups=both + two.partition("\n")[2], personal=""))
    with pytest.raises(SettingsError, match=r"goes by 'one\.districtCode', but 'one' is no lookup"):
        load_topics(missing)
