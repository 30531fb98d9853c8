"""Columns of decoded rows besides those of the fields. No field can have one of these names.

`REASON`: why a record is rejected, NULL for a good one. `CAME`: the original columns `AS_IT_CAME`.
`PRESENT`: for a partial update, the fields that the message has.
"""

from lake.topics.topic import Topic, snake_case

REASON, CAME, PRESENT = "_reason", "_came", "_present"
AS_IT_CAME = ("key", "payload", "event_time", "schema_version")
# For partial updates: the orders of the latest upsert, the latest delete and the mark.
UPSERTED, DELETED, COLLECTED = "_upserted", "_deleted", "_collected"


def registers(topic: Topic) -> dict[str, str]:
    """The last-writer-wins fields of a changelog, by column name: all but key and sequence."""
    rest = [name for name in topic.fields if name not in (*topic.key, *topic.sequence)]
    return {snake_case(name): name for name in rest}
