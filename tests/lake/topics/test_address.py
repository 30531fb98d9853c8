"""Tests which addresses and starts a topic file may declare."""

from pathlib import Path

import pytest
from topic import GOOD, write

from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

KEY = 'key = ["id"]\n'
EVENTS = 'kind = "events"\n'


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        (
            KEY,
            f"{KEY}topic = ['a', 'b']\n",
            ":5: topics.users.topic: must be the name",
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
        (KEY, f"{KEY}pattern = 'a.*'\n", ":5: topics.users.pattern: unknown key"),
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
    assert topics.addresses("our/own") == {
        "users": full,
        "orders": "persistent://our/own/orders",
    }


def test_a_short_and_a_full_address_of_one_topic_are_refused(tmp_path: Path) -> None:
    address = "persistent://our/own/orders"
    topics = load_topics(write(tmp_path, GOOD.replace(KEY, f"{KEY}topic = '{address}'\n", 1)))
    with pytest.raises(SettingsError, match=f"'users' and 'orders' are both the topic {address}"):
        topics.addresses("our/own")
    assert topics.addresses("other/one")["users"] == address
