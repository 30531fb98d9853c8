"""Tests which addresses and starts a topic file may declare."""

from pathlib import Path

import pytest
from topic import GOOD, declared, write

from lake.topics.address import Address
from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

KEY = 'key = ["id"]\n'
EVENTS = 'kind = "events"\n'


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        (KEY, f"{KEY}topic = 5\n", ":5: topics.users.topic: must be the name of a topic, not 5"),
        (KEY, f"{KEY}topic = []\n", ":5: topics.users.topic: is an empty list"),
        (KEY, f"{KEY}topic = ['a', 5]\n", "must be the name of a topic, not 5"),
        (KEY, f"{KEY}topic = ['a', 'a']\n", "has 'a' twice, so each message would be stored"),
        (KEY, f"{KEY}topic = ['a', 'b']\n", "topic 'users' has several topics, so it needs a"),
        (KEY, f"{KEY}pattern = 'a.*'\n", "topic 'users' has several topics, so it needs a"),
        (EVENTS, f"{EVENTS}topic = 'a'\npattern = 'a.*'\n", "'topic' and 'pattern', but only one"),
        (EVENTS, f"{EVENTS}pattern = 'a('\n", ":11: topics.orders.pattern: 'a(' is not a regular"),
        (EVENTS, f"{EVENTS}pattern = '(?i)a'\n", "'(?i)a' is not a regular expression: global"),
        (EVENTS, f"{EVENTS}pattern = 5\n", "must be a regular expression in quotes, not 5"),
        (EVENTS, f"{EVENTS}pattern = 'a b'\n", "neither a regular expression without blanks and"),
        (EVENTS, f"{EVENTS}pattern = 'persistent://a.*/b/c'\n", "tenant and namespace are plain"),
        (EVENTS, f"{EVENTS}pattern = 'non-persistent://a/b/.*'\n", "is not persistent"),
        (EVENTS, f"{EVENTS}pattern = '.*'\n", "the pattern of topic 'orders' matches users, which"),
        (
            EVENTS,
            f"{EVENTS}topic = ['x', 'users']\n",
            "'users' and 'orders' are both the topic use",
        ),
        (KEY, f"{KEY}topic = 'non-persistent://a/b/c'\n", "is not persistent: the broker does not"),
        (KEY, f"{KEY}topic = 'a/b'\n", ":5: topics.users.topic: 'a/b' is neither"),
        (KEY, f"{KEY}topic = 'persistent://a/b'\n", "nor persistent://tenant/namespace/name"),
        (KEY, f"{KEY}topic = 'persistent://a /b/c'\n", "nor persistent://tenant/namespace/name"),
        (KEY, f"{KEY}topic = 'a,b'\n", "'a,b' is neither a short name"),
        (KEY, f"{KEY}topic = ''\n", "'' is neither a short name"),
        (KEY, f"{KEY}topic = 'a-partition-3'\n", "is one partition of a topic; name the topic"),
        (KEY, f"{KEY}topic = 'orders'\n", "topics 'users' and 'orders' are both the topic orders"),
        (KEY, f"{KEY}start = 'latest'\n", "must start at 'earliest': keys whose latest message is"),
        (EVENTS, f"{EVENTS}start = 'now'\n", "'now' is neither earliest, latest nor an instant"),
        (EVENTS, f"{EVENTS}start = '2026-01-31T00:00:00'\n", "an instant with a time zone"),
        (EVENTS, f"{EVENTS}start = 5\n", ":11: topics.orders.start: '5' is neither"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    with pytest.raises(SettingsError) as error:
        load_topics(write(tmp_path, GOOD.replace(was, becomes, 1)))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("start", "becomes"),
    [
        *((f"'{each}'", each) for each in ("earliest", "latest", "2026-01-31T00:00:00Z")),
        ("2026-01-31T01:00:00+01:00", "2026-01-31T01:00:00+01:00"),
    ],
)
def test_events_may_start_anywhere(tmp_path: Path, start: str, becomes: str) -> None:
    path = write(tmp_path, GOOD.replace(EVENTS, f"{EVENTS}start = {start}\n"))
    assert load_topics(path).topics["orders"].start == becomes


@pytest.mark.parametrize(
    ("address", "full"),
    [
        ("device-telemetry", "persistent://our/own/device-telemetry"),
        ("transactions.debits", "persistent://our/own/transactions.debits"),
        ("persistent://bank/prod/transactions.debits",) * 2,
    ],
)
def test_a_topic_may_have_another_address_than_its_name(
    tmp_path: Path, address: str, full: str
) -> None:
    topics = load_topics(write(tmp_path, GOOD.replace(KEY, f"{KEY}topic = '{address}'\n", 1)))
    assert {name: str(each) for name, each in topics.addresses("our/own").items()} == {
        "users": full,
        "orders": "persistent://our/own/orders",
    }


def test_a_short_and_a_full_address_of_one_topic_are_refused(tmp_path: Path) -> None:
    address = "persistent://our/own/orders"
    topics = load_topics(write(tmp_path, GOOD.replace(KEY, f"{KEY}topic = '{address}'\n", 1)))
    with pytest.raises(SettingsError, match=f"'users' and 'orders' are both the topic {address}"):
        topics.addresses("our/own")
    assert topics.addresses("other/one")["users"].names == (address,)


@pytest.mark.parametrize(
    ("declared", "options", "held", "others"),
    [
        (
            "topic = ['a-1', 'persistent://bank/prod/b.2']",
            {"topics": "persistent://our/own/a-1,persistent://bank/prod/b.2"},
            {"a-1": "persistent://our/own/a-1", "b.2": "persistent://bank/prod/b.2"},
            ["persistent://our/own/b.2", "a-2", ""],
        ),
        (
            r"pattern = 'device-\d{1,3}'",
            {"topicsPattern": r"persistent://our/own/device-\d{1,3}"},
            {"device-17": "persistent://our/own/device-17"},
            ["device-1000", "device-", "persistent://other/own/device-17"],
        ),
        (
            "pattern = 'persistent://bank/prod/.*'",
            {"topicsPattern": "persistent://bank/prod/.*"},
            {
                "persistent://bank/prod/x": "persistent://bank/prod/x",
                "x": "persistent://bank/prod/x",
            },
            ["persistent://our/own/x"],
        ),
    ],
)
def test_events_may_come_from_several_topics(
    tmp_path: Path, declared: str, options: dict[str, str], held: dict[str, str], others: list[str]
) -> None:
    path = write(tmp_path, GOOD.replace(EVENTS, f"{EVENTS}{declared}\n"))
    address = load_topics(path).addresses("our/own")["orders"]
    assert address.options == options
    assert {name: address.named(name) for name in held} == held
    assert not [name for name in others if address.named(name)]
    assert Address.parse(str(address)) == address


SEQUENCED = {
    KEY: f"{KEY}topic = ['a', 'b']\nsequence = ['rev']\ndelete = 'never'\n",
    "[topics.users.fields]\n": "[topics.users.fields]\nrev = 'long'\n",
}
KEYED = {
    KEY: "key = ['source', 'id']\npattern = 'a.*'\n",
    "[topics.users.fields]\n": (
        "[topics.users.fields]\nsource = { type = 'string', from_message = 'topic' }\n"
    ),
}


@pytest.mark.parametrize("changes", [SEQUENCED, KEYED])
def test_a_changelog_may_come_from_several_topics_if_they_cannot_mix(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    text = GOOD[: GOOD.index("[topics.orders")]
    for was, becomes in changes.items():
        text = text.replace(was, becomes)
    assert load_topics(write(tmp_path, text)).topics["users"].has_several


def test_the_topic_alone_is_no_key(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("[topics.orders")]
    text = text.replace(KEY, "key = ['source']\n").replace(
        "[topics.users.fields]\n",
        "[topics.users.fields]\nsource = { type = 'string', from_message = 'topic' }\n",
    )
    with pytest.raises(SettingsError, match="has only 'source' as its key, which is the same"):
        load_topics(write(tmp_path, text))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("device-.*", ["device-1", "device-2", "device-3"]),
        (r"(?:eu|us)-orders-\d+", ["eu-orders-1", "us-orders-2", "eu-orders-3"]),
        (r"a\.b\..+", ["a.b.1", "a.b.2", "a.b.3"]),
        ("[a-z]+", ["a", "b"]),
        ("[a-z]{9}", []),
    ],
)
def test_examples_match_their_pattern(pattern: str, names: list[str]) -> None:
    head = "persistent://plant/prod/"
    assert Address(pattern=f"{head}{pattern}").examples == [f"{head}{name}" for name in names]


def test_a_choice_of_names_applies_within_the_namespace(tmp_path: Path) -> None:
    text = GOOD.replace(EVENTS, f"{EVENTS}pattern = 'shop-.*|store-.*'\n", 1)
    address = declared(tmp_path, text).addresses("our/own")["orders"]
    assert address.holds("persistent://our/own/store-7")
    assert not address.holds("store-7")


def test_patterns_that_match_the_same_names_are_refused(tmp_path: Path) -> None:
    text = """
[topics.{name}]
kind = "events"
key = ["id"]
pattern = '{pattern}'
fields = {{ id = "long" }}
"""
    patterns = {"one": "device-.*", "other": r"device-\d+-x|device-7.*", "apart": "b.*"}
    one, other, apart = (text.format(name=n, pattern=each) for n, each in patterns.items())
    assert len(declared(tmp_path, one + apart).topics) == 2
    path = write(tmp_path, one + other)
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert str(error.value).startswith(f"{path}:")
    assert "the patterns of topics 'other' and 'one' both match names such as" in str(error.value)
