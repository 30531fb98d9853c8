"""Which events of a topic with a `lateness` are late, and the SQL of the view that lists them.

An event is late if its event time is before the watermark by more than the lateness. The watermark
is the latest event time of the messages that were published before it, where no event time counts
as later than its publish time. Publish times are stored in bronze, so the list does not depend on
batches, on the order in which partitions are read, or on a replay.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from lake.quoting import identifier
from lake.topics.durations import micros
from lake.topics.topic import LATE_BY, WATERMARK, Topic, snake_case
from pulsar_spark.schema import ORDER_FIELDS

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
NEVER = -(1 << 62)  # before all instants


def judged_columns(topic: Topic) -> list[str]:
    """The columns by which the events of a topic are judged: event time, publish time, position."""
    return [snake_case(str(topic.event_time)), "publish_time", "position"]


def late_by(rows: pa.Table, before: dt.datetime | None, lateness: dt.timedelta) -> pa.Array:
    """By how many microseconds each late event of a batch is before its watermark.

    Args:
        rows: the good events of the batch, with the columns `judged_columns`.
        before: the watermark of the batches before; None if there is none.
        lateness: how much is not late yet.
    """
    at, published = (pc.cast(pc.cast(rows[n], _INSTANT), pa.int64()) for n in rows.column_names[:2])
    position = rows["position"].combine_chunks()
    parts = {name: pc.struct_field(position, name) for name in ORDER_FIELDS}
    since = pc.cast(pc.cast(parts["order_time"], _INSTANT), pa.int64())
    parts["order_time"] = pc.fill_null(since, NEVER)  # as in Spark, NULL comes first
    table = pa.table({"at": at, "published": published, **parts})
    table = table.filter(pc.is_valid(table["at"]))
    order = [(name, "ascending") for name in ("published", *ORDER_FIELDS)]
    table = table.sort_by(order)
    at, published = table["at"].combine_chunks(), table["published"].combine_chunks()
    start = NEVER if before is None else micros(before - EPOCH)
    moved = pc.if_else(pc.less(at, published), at, published)
    seen = pc.cumulative_max(pa.concat_arrays([pa.array([start], pa.int64()), moved]))
    behind = pc.subtract(seen.slice(0, len(at)), at)
    return behind.filter(pc.greater(behind, micros(lateness)))


_INSTANT = pa.timestamp("us", "UTC")


def late_sql(topic: Topic) -> str:
    """The query of `silver.late_<topic>` over the topic's enriched events.

    It first finds the watermark at the begin of each hour. The events of an hour are then judged
    independently of other hours.
    """
    at = identifier(snake_case(str(topic.event_time)))
    names = list(dict.fromkeys([*map(identifier, topic.key_columns), at]))
    shown = ", ".join(names)
    earlier = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    in_order = f"PARTITION BY _hour ORDER BY publish_time, position {earlier}"
    return f"""
WITH events AS (
    SELECT {shown}, publish_time, position, date_trunc('HOUR', publish_time) AS _hour,
        least({at}, publish_time) AS _moved
    FROM `enriched_{topic.name}` WHERE {at} IS NOT NULL
),
hours AS (
    SELECT _hour AS _begin, max(max(_moved)) OVER (ORDER BY _hour {earlier}) AS _before
    FROM events GROUP BY _hour
),
judged AS (
    SELECT events.*, greatest(_before, max(_moved) OVER ({in_order})) AS {WATERMARK}
    FROM events JOIN hours ON _hour = _begin
)
SELECT {shown}, {WATERMARK}, (unix_micros({WATERMARK}) - unix_micros({at})) DIV 1000 AS {LATE_BY},
    publish_time, position
FROM judged WHERE unix_micros({WATERMARK}) - unix_micros({at}) > {micros(topic.lateness)}
"""  # noqa: S608 - topic.py checks names
