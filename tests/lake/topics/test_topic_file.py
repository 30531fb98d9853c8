"""Tests which topic files are accepted, and that each error names its line and key."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from topic import GOOD, write

from lake.settings.settings import SHOP_TOPICS
from lake.topics.topic_file import TopicFile, load_topics
from pulsar_spark.errors import SettingsError

KEY = 'key = ["id"]\n'

HASHED = 'name = { type = "string", personal = "hash" }\n'


def test_the_shops_topics_match_the_documented_messages() -> None:
    topics = load_topics(SHOP_TOPICS)
    assert [topic.name for topic in topics.changelogs()] == ["users", "items"]
    [orders] = topics.events()
    assert orders.key_columns == ["invoice_id", "line_item_id"]
    assert orders.message_key == "invoiceId"
    assert orders.event_time == "createdAt"
    assert orders.partitions > 1
    assert list(orders.fields) == [
        *("invoiceId", "lineItemId", "userId", "itemId", "itemName", "itemCategory"),
        *("price", "createdAt", "paidAt"),
    ]
    assert list(topics.topics["users"].fields) == [
        *("id", "firstName", "lastName", "emailAddress"),
        *("createdAt", "deletedAt", "mergedAt", "parentUserId"),
    ]
    assert list(topics.topics["items"].fields) == [
        *("id", "createdAt", "adjective", "category", "modifier", "name", "price"),
    ]


def test_a_custom_topic_file_is_read(tmp_path: Path) -> None:
    topics = load_topics(write(tmp_path, GOOD))
    assert topics.topics["users"].fields["parentUserId"].nullable
    assert not topics.topics["users"].fields["id"].nullable
    assert topics.topics["orders"].lookups["user"].topic == "users"


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('kind = "changelog"', 'kind = "state"', ":3: topics.users.kind"),
        ('key = ["id"]', 'key = ["nr"]', "names 'nr', which is not among its fields"),
        ('key = ["id"]', "key = []", ":4: topics.users.key"),
        ('id = "long"', 'id = "number"', "'number' is not a type; use one of boolean, int, long"),
        ('id = "long"', 'id = "decimal(5,9)"', "'decimal(5,9)' is not a type"),
        ("absent = -1", "absence = -1", ":7: topics.users.fields.parentUserId.absence: unknown"),
        ('key = ["id"]', 'key = ["id"]\nretries = 3', ":5: topics.users.retries: unknown key"),
        ('topic = "users"', 'topic = "people"', "lookup 'user' of topic 'orders' needs 'people'"),
        ('topic = "users"', 'topic = "orders"', "to be a changelog in this file"),
        ("[topics.users]", "[topics.users", "not valid TOML"),
        ('key = ["id"]', 'key = ["id"]\nschema = "protobuf"', ":5: topics.users.schema"),
        ('key = ["id"]', 'key = ["id"]\nschema = "bytes"', "besides its key, of type binary"),
        ('key = ["id"]', 'key = ["id"]\ndelete = "maybe"', "topics.users.delete"),
        ('key = ["id"]', 'key = ["id"]\ndelete = { field = "op", equals = "d" }', "names 'op'"),
        ('kind = "events"', 'kind = "events"\ndelete = "never"', "all kept; remove 'delete'"),
        ('kind = "events"', 'kind = "events"\ncompacted = true', "all kept; remove 'compacted'"),
        ('id = "long"', 'id = { type = "long", required = false }', "'id' in its key or sequence"),
        ('key = ["id"]', 'key = ["id"]\nsequence = ["id"]', "tombstones have no fields"),
        ('key = ["id"]', 'key = ["id"]\nsequence = ["at"]', "names 'at', which is not among"),
        ('key = ["id"]', f"{KEY}envelope = 'debezium'\ndelete = 'never'", "remove 'delete'"),
        ("absent = -1", 'path = "id.lsn"', "which is within the field 'id' at 'id'"),
        (
            'key = ["id"]',
            f"{KEY}partitions = 2\ntruncate = {{ field = 'id', equals = 0 }}",
            "'truncate' and several partitions, so it needs a 'sequence'",
        ),
        (
            'key = ["id"]',
            f"{KEY}partitions = 2\nenvelope = 'debezium'",
            "'envelope' and several partitions, so it needs a 'sequence'",
        ),
        (
            'id = "long"',
            'id = "long"\npublishTime = "long"',
            "silver adds a column 'publish_time' of its",
        ),
        ('id = "long"', 'id = "long"\naB = "long"\na_b = "long"', "both need the column 'a_b'"),
        ("user = {", "id = {", "has a field 'id' and a lookup 'id', which both need the column"),
        ("user = {", "position = {", "has a lookup 'position', but silver adds"),
        ('key = ["id"]', f"{KEY}merged_into = 'parent'", "names 'parent', which is not among"),
        ('kind = "events"', 'kind = "events"\nhistory = true', "all kept; remove 'history'"),
        ('on = "userId"', 'on = "userId", mode = "as_of"', "lookup, so it needs an 'event_time'"),
        (
            'key = ["id"]',
            f"{KEY}keep = '12 hours'",
            ":5: topics.users.keep: '12 hours' is less than",
        ),
        ('key = ["id"]', f"{KEY}keep = 400", ":5: topics.users.keep: '400' is no duration"),
        ('key = ["id"]', f"{KEY}keep = '9 days'\nhistory = true", "'keep' and 'history', but its"),
        ('key = ["id"]', f"{KEY}keep = '9 days'\nupdates = 'partial'", "'keep' and 'updates', but"),
        ('key = ["id"]', f"{KEY}keep = '9 days'\nignore_null_updates = true", "'ignore_null_up"),
        ('key = ["id"]', f"{KEY}keep = '9 days'\ntombstones_days = 9", "'keep' and 'tombstones_d"),
        (
            "[topics.orders.fields]",
            "keep = '9 days'\nlateness = '1 day'\nevent_time = 'at'\n[topics.orders.fields]\n"
            "at = 'timestamp'",
            "has 'keep' and a 'lateness', but the list",
        ),
        ("[topics.users]", '[topics."; drop"]', "topics.; drop"),
        (
            "absent = -1",
            'personal = "encrypt"',
            "parentUserId.personal: Input should be 'keep', 'm",
        ),
        ("absent = -1", 'personal = "hash"', "of type long; only strings can be hashed"),
        (
            'id = "long"',
            'id = { type = "long", personal = "mask" }',
            "rows by 'id', which must have per",
        ),
        ('userId = "long"', 'userId = { type = "long", personal = "mask" }', "rows by 'userId'"),
        (
            'key = ["id"]\n[topics.users.fields]',
            f"{KEY}updates = 'partial'\n[topics.users.fields]\n{HASHED}",
            "partial updates, which cannot be combined with a hashed field such as 'name'",
        ),
        (
            "[topics.users.fields]",
            f"[topics.users.fields]\n{HASHED}name_hash = 'string'",
            "has a field for the column 'name_hash', which holds the hash of 'name'",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_location(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    path = write(tmp_path, GOOD.replace(was, becomes, 1))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert says in str(error.value)
    assert str(error.value).startswith(str(path))


def test_lookups_of_the_same_name_have_views_of_their_own(tmp_path: Path) -> None:
    again = GOOD[GOOD.index("[topics.orders]") :].replace("topics.orders", "topics.returns")
    views = load_topics(write(tmp_path, GOOD + again)).missing_views()
    assert {name: (topic.name, lookup) for name, (topic, lookup) in views.items()} == {
        "missing_user": ("orders", "user"),
        "missing_user_of_returns": ("returns", "user"),
    }


def test_only_partial_updates_reserve_the_name_of_their_column(tmp_path: Path) -> None:
    users = GOOD.replace("[topics.users.fields]", "[topics.users.fields]\norders = 'int'", 1)
    assert "orders" in load_topics(write(tmp_path, users)).topics["users"].fields
    partial = users.replace(
        "[topics.users.fields]", 'updates = "partial"\n[topics.users.fields]', 1
    )
    with pytest.raises(SettingsError, match="silver adds a column 'orders' of its own"):
        load_topics(write(tmp_path, partial.replace('merged_into = "parentUserId"', "")))


def test_the_error_for_a_missing_file_says_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the topic file.*--topics"):
        load_topics(tmp_path / "none.toml")


NAMES = {
    "topic": "orders",
    "field": "note",
    "lookup": "user",
    "view": "seen",
    "column": "name",
    "type": "string",
    "join": "pairs",
    "prefix": "other",
}


def declared(names: dict[str, str]) -> dict[str, Any]:
    """Return a declaration with a name in every place that takes one."""
    users = {"kind": "changelog", "key": ["id"], "fields": {"id": "long"}}
    orders = {
        **{"kind": "events", "key": ["id"], "event_time": "at"},
        "fields": {"id": "long", "userId": "long", "at": "timestamp", names["field"]: "string"},
        "lookups": {names["lookup"]: {"topic": "users", "on": "userId"}},
    }
    seen = {
        **{"description": "Seen", "sql": "select id from users", "key": ["id"]},
        "columns": {"id": "bigint", names["column"]: names["type"]},
        "sources": {"users": ["id"]},
    }
    pairs = {
        **{"left": names["topic"], "right": names["topic"], "prefix": names["prefix"]},
        **{"on": {names["field"]: names["field"]}, "within": {"after": "1 hour"}},
    }
    return {
        "topics": {"users": users, names["topic"]: orders},
        "views": {names["view"]: seen},
        "joins": {names["join"]: pairs},
    }


def test_each_kind_of_name_is_accepted() -> None:
    assert TopicFile.model_validate(declared(NAMES)).views["seen"].columns["name"] == "string"


SQL = st.text(st.sampled_from("ab_1 ,;.()'\"`-/*\\\n\0é=$"), min_size=1)


@given(place=st.sampled_from(sorted(NAMES)), name=st.text(min_size=1) | SQL)
def test_no_name_can_inject_sql(place: str, name: str) -> None:
    with contextlib.suppress(ValidationError):
        TopicFile.model_validate(declared({**NAMES, place: name}))
        harmless = r"[a-z]+(\([0-9]+,[0-9]+\))?" if place == "type" else r"[A-Za-z][A-Za-z0-9_]*"
        assert re.fullmatch(harmless, name)
