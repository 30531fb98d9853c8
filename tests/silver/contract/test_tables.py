"""Tests silver's table contracts."""

from pathlib import Path

from topic import declared

from lake.topics.topic import ORDERS, OWN_COLUMNS
from silver.contract.columns import CAME, PRESENT, REASON
from silver.contract.tables import enriched_table, history_table, own_columns, state_table

TOPICS = """
[topics.whole]
kind = "changelog"
key = ["id"]
history = true
truncate = { field = "op", equals = "t" }
merged_into = "into"
tombstones_days = 1
[topics.whole.fields]
id = "long"
into = "long"
op = "string"

[topics.partial]
kind = "changelog"
key = ["id"]
updates = "partial"
tombstones_days = 1
[topics.partial.fields]
id = "long"

[topics.events]
kind = "events"
key = ["id"]
event_time = "at"
[topics.events.fields]
id = "long"
at = "timestamp"
[topics.events.lookups]
then = { topic = "whole", on = "id", mode = "as_of" }
"""


def test_no_field_may_have_the_name_of_a_column_that_silver_adds(tmp_path: Path) -> None:
    topics = declared(tmp_path, TOPICS)
    specs = [
        *((topic, state_table(topic)) for topic in topics.changelogs()),
        *((topic, history_table(topic)) for topic in topics.changelogs() if topic.history),
        *((topic, enriched_table(topic, topics)) for topic in topics.events()),
    ]
    assert len(specs) == 4
    for topic, spec in specs:
        looked_up = {part for name in topic.lookups for part in (name, f"{name}_position")}
        added = {column.name for column in spec.columns} - looked_up
        assert added - {column.name for column in own_columns(topic)} <= OWN_COLUMNS | {ORDERS}
    assert {CAME, PRESENT, REASON} <= OWN_COLUMNS
