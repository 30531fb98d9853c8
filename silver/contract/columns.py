"""Columns of decoded rows besides those of the fields. No field can have one of these names.

`REASON`: why a record is rejected, NULL for a good one. `CAME`: the original columns `as_it_came`.
`PRESENT`: for a partial update, the fields that the message has. `ELEMENT`: for a topic that is
exploded, the number of the element in the message; NULL for a message without rows.
"""

from lake.topics.topic import Topic, snake_case

REASON, CAME, PRESENT, ELEMENT = "_reason", "_came", "_present", "_element"
AS_IT_CAME = ("key", "payload", "event_time", "schema_version")
# For partial updates: the orders of the latest upsert, the latest delete and the mark.
UPSERTED, DELETED, COLLECTED = "_upserted", "_deleted", "_collected"


def as_it_came(topic: Topic) -> tuple[str, ...]:
    """The original columns that are kept of a rejected message.

    Those of the quarantine. If fields come from properties, `lakehouse forget` searches these, too.
    """
    if any(spec.message_property for spec in topic.fields.values()):
        return (*AS_IT_CAME, "properties")
    return AS_IT_CAME


def registers(topic: Topic) -> dict[str, str]:
    """The last-writer-wins fields of a changelog, by column name: all but key and sequence."""
    rest = [name for name in topic.fields if name not in (*topic.key, *topic.sequence)]
    return {snake_case(name): name for name in rest}
