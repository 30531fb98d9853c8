"""Tests which fields a changelog tracks or fills, and what is refused of updates and snapshots."""

from pathlib import Path

import pytest
from topic import declared, write

from lake.topics.topic_file import load_topics
from pulsar_spark.errors import SettingsError

TOPIC = """
[topics.people]
kind = "changelog"
key = ["id"]
{options}
[topics.people.fields]
id = "string"
seq = "int"
at = "timestamp"
op = {{ type = "string", required = false }}
town = {{ type = "string", required = false }}
tags = {{ type = "map<string, string>", required = false }}
"""
SNAPSHOT = 'sequence = ["seq"]\ndelete = "never"\nsnapshot_end = { field = "op", equals = "end" }\n'


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("history = {}", ":5: topics.people.history: names no fields"),
        ("history = 7", ":5: topics.people.history: must be true, false, { columns"),
        ("history = { columns = [] }", ":5: topics.people.history.columns: Tuple should have"),
        ("history = { colums = ['town'] }", ":5: topics.people.history.colums: unknown key"),
        (
            "history = { columns = ['town'], except = ['op'] }",
            ":5: topics.people.history: has 'columns' and 'except'; remove one of them",
        ),
        ("history = { columns = ['towns'] }", "names 'towns' in 'history', which is not among"),
        ("history = { except = ['id'] }", "excepts its key 'id' in 'history'"),
        (
            "history = { except = ['seq', 'at', 'op', 'town', 'tags'] }",
            "tracks no field in 'history'; name a field whose changes",
        ),
        ("history = { columns = ['id'] }", "tracks no field in 'history'"),
        (
            "history = { columns = ['op'] }\nmerged_into = 'town'",
            "'town' in 'merged_into', so 'history' must track it",
        ),
        ("history = { columns = ['tags'] }", "tracks 'tags' in 'history', which has a map"),
        (f"{SNAPSHOT}history = true", "tracks 'tags' in 'history', which has a map"),
        (
            "updates = 'partial'\nmerged_into = 'town'",
            "has partial updates, which cannot be combined with 'merged_into'",
        ),
        (
            "updates = 'partial'\nhistory = true\ntruncate = { field = 'op', equals = 't' }",
            "has partial updates and 'history', which cannot be combined with 'truncate'",
        ),
        (
            "ignore_null_updates = true\nhistory = true\nenvelope = 'debezium'",
            "has 'ignore_null_updates' and 'history', which cannot be combined with 'envelope'",
        ),
        ("ignore_null_updates = { columns = ['id'] }", "each message needs it for the key or the"),
        ("ignore_null_updates = ['town']", "topics.people.ignore_null_updates: must be true, fal"),
        (
            SNAPSHOT.replace('sequence = ["seq"]', ""),
            "has 'snapshot_end', so it needs a 'sequence' with the number or time of the snapshot",
        ),
        (f"{SNAPSHOT}partitions = 2", "'snapshot_end' and several partitions, where the end of a"),
        (f"{SNAPSHOT}topic = ['a', 'b']", "has 'snapshot_end' and several topics"),
        (f"{SNAPSHOT}updates = 'partial'", "cannot be combined with 'updates = 'partial''"),
        (
            f"{SNAPSHOT}truncate = {{ field = 'town', equals = 't' }}",
            "has 'snapshot_end', which cannot be combined with 'truncate'",
        ),
        (SNAPSHOT.replace('field = "op"', 'field = "seq"'), "'seq' in 'snapshot_end', which is p"),
        (SNAPSHOT.replace('field = "op"', 'field = "odd"'), "names 'odd', which is not among"),
        (SNAPSHOT.replace('field = "op"', 'field = "tags"'), "'tags' in 'snapshot_end', which ne"),
    ],
)
def test_what_would_depend_on_the_order_of_messages_is_refused(
    tmp_path: Path, options: str, says: str
) -> None:
    path = write(tmp_path, TOPIC.format(options=options))
    with pytest.raises(SettingsError) as error:
        load_topics(path)
    assert str(error.value).startswith(f"{path}:")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("options", "tracked"),
    [
        ("", None),
        ("history = true", None),
        ("history = false", None),
        ("history = { columns = ['town', 'op'] }", ["op", "town"]),
        ("history = { except = ['tags', 'at'] }", ["seq", "op", "town"]),
        (f"{SNAPSHOT}event_time = 'at'\nhistory = {{ except = ['tags'] }}", ["town"]),
        (f"{SNAPSHOT}history = {{ columns = ['op', 'town'] }}", ["op", "town"]),
    ],
)
def test_the_fields_whose_changes_make_a_version(
    tmp_path: Path, options: str, tracked: list[str] | None
) -> None:
    topic = declared(tmp_path, TOPIC.format(options=options)).topics["people"]
    assert topic.tracked == tracked
    assert topic.keeps_changes is (tracked is not None)


def test_events_have_none_of_these_options(tmp_path: Path) -> None:
    path = write(tmp_path, TOPIC.replace("changelog", "events").format(options=SNAPSHOT))
    with pytest.raises(SettingsError, match="which are all kept; remove 'delete'"):
        load_topics(path)
