"""Tests which fields may come from elsewhere than the payload, and which may be computed."""

from pathlib import Path

import pytest
from topic import GOOD, write

from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

HASHED = 'name = { type = "string", personal = "hash" }\n'
FROM_KEY = "{ type = 'string', from_message = 'key' }"
LOWER = "low = { type = 'string', sql = 'lower(other)' }"
TENANT = "tenant = { type = 'string', from_message = 'properties.tenant' }"


@pytest.mark.parametrize(
    ("options", "fields", "says"),
    [
        *(
            ("", f"a = {{ type = 'string', from_message = '{part}' }}", "is not a part of a mess")
            for part in ("properties", "properties.", "payload", "keys", "")
        ),
        (
            *("", "a = { type = 'long', from_message = 'event_time' }"),
            ":7: topics.t.fields.a: is the event_time of the message, so its type",
        ),
        (
            *("", "a = { type = 'string', from_message = 'key', path = 'a' }"),
            "'path' and 'from_message', but a value is in one place; remove one",
        ),
        *(
            (
                *("", f"a = {{ type = '{kind}', from_message = '{part}', personal = 'keep' }}"),
                f"the {part} of the message, which `lakehouse forget` cannot erase",
            )
            for kind, part in (("timestamp", "publish_time"), ("string", "topic"))
        ),
        ("", f"a = {FROM_KEY}\nb = {FROM_KEY}", "has 'a' and 'b' from the same part"),
        ("key = ['tenant']", TENANT, "only from_message = 'key' can be a key"),
        ("key = ['id', 'tenant']", TENANT, "in a key of several fields"),
        ("key = ['id', 'a']", f"a = {FROM_KEY}", "in a key of several fields"),
        (
            "key = ['a']\nmerged_into = 'other'",
            f"a = {FROM_KEY}\nother = 'string'",
            "'merged_into', so that field and its key must be in the payload",
        ),
        (
            "truncate = { field = 'tenant', equals = 'none' }",
            TENANT,
            "truncates by 'tenant', which must be in the payload",
        ),
        *(
            (options, f"{LOWER}\nother = 'string'", says)
            for options, says in (
                ("key = ['low']", "has 'low' in 'key', so it cannot be computed"),
                ("delete = 'never'; sequence = ['low']", "has 'low' in 'sequence'"),
                ("delete = { field = 'low', equals = 'd' }", "has 'low' in 'delete' or 'truncate'"),
                ("event_time = 'low'", "has 'low' in 'event_time'"),
                ("message_key = 'low'", "has 'low' in 'message_key'"),
                ("updates = 'partial'", "has partial updates, so 'low' cannot be computed"),
            )
        ),
        (
            "merged_into = 'low'",
            "low = { type = 'long', sql = 'id + 1' }",
            "has 'low' in 'merged_into', so it cannot be computed",
        ),
        (
            "merged_into = 'other'",
            f"{LOWER}\nother = 'long'",
            "computes 'low' from 'other', where `lakehouse forget`",
        ),
        ("", "low = { type = 'string', sql = 'lower(low)' }", "uses 'low', which is not a column"),
        ("", "low = { type = 'string', sql = 'uuid()' }", "has 'low', whose 'sql' calls uuid"),
        ("", "low = { type = 'string', sql = '1', path = 'a' }", "has 'path' and 'sql', but"),
        ("", "low = { type = 'int', sql = '1', absent = 1 }", "has 'sql' and 'absent'"),
        ("", "low = { type = 'timestamp_ms', sql = '1' }", "its type is 'timestamp'"),
        ("", f"{LOWER}\nother = {{ type = 'string', personal = 'keep' }}", "which is personal"),
        (
            *("", f"{LOWER[:-2]}, personal = 'keep' }}\n{HASHED.replace('name', 'other')}"),
            "of which gold must not see the value; declare it with personal = 'mask' or 'hash'",
        ),
        ("message_key = 'id'", f"a = {FROM_KEY}", "so 'message_key' must name this field"),
        ("schema = 'string'", TENANT, "exactly one field in the payload besides its key"),
    ],
)
def test_a_field_of_the_message_that_would_be_read_wrongly_is_refused(
    tmp_path: Path, options: str, fields: str, says: str
) -> None:
    key = "" if options.startswith("key") else "key = ['id']; "
    options = f"{key}{options}".replace("; ", "\n")
    text = f"[topics.t]\nkind = 'changelog'\n{options}\n[topics.t.fields]\nid = 'long'\n"
    path = write(tmp_path, f"{text}{fields}\n")
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert says in str(error.value)


def test_a_topic_needs_a_field_in_its_payload(tmp_path: Path) -> None:
    text = f"[topics.t]\nkind = 'events'\nkey = ['id']\n[topics.t.fields]\nid = {FROM_KEY}\n"
    with pytest.raises(SettingsError, match="has no field in the payload"):
        load_topics(write(tmp_path, text))


def test_what_is_computed_from_a_key_of_people_must_be_personal(tmp_path: Path) -> None:
    computed = "{ type = 'long', sql = 'user_id % 10', required = false }"
    text = GOOD.replace('userId = "long"', f'userId = "long"\npart = {computed}')
    assert load_topics(write(tmp_path, text)).topics["orders"].computed_from("part") == ["userId"]
    text = text.replace("absent = -1", 'personal = "keep"')
    with pytest.raises(SettingsError, match="'part' from 'userId', which refers to people; dec"):
        load_topics(write(tmp_path, text))
    load_topics(write(tmp_path, text.replace("% 10'", "% 10', personal = 'mask'")))


def test_a_lookup_of_people_needs_a_field_of_the_payload(tmp_path: Path) -> None:
    text = GOOD.replace('userId = "long"', 'userId = { type = "long", from_message = "key" }')
    assert load_topics(write(tmp_path, text)).topics["orders"].lookups
    text = text.replace("absent = -1", 'personal = "keep"')
    with pytest.raises(SettingsError, match="refers to people by 'userId', which must be in the p"):
        load_topics(write(tmp_path, text))
