"""Columns that decoded rows have beside those of the fields, as no field can be called.

`REASON`: why a record is refused, NULL for a good one. `CAME`: what came, `AS_IT_CAME`. `PRESENT`:
of a partial update, the fields that the message has.
"""

from bronze.declarations import Topic, snake_case

REASON, CAME, PRESENT = "_reason", "_came", "_present"
AS_IT_CAME = ("key", "payload", "event_time", "schema_version")
# Of partial updates: the orders of the latest upsert, the latest delete and the mark.
UPSERTED, DELETED, COLLECTED = "_upserted", "_deleted", "_collected"


def registers(topic: Topic) -> dict[str, str]:
    """The fields that are registers, by their column."""
    rest = [name for name in topic.fields if name not in (*topic.key, *topic.sequence)]
    return {snake_case(name): name for name in rest}
