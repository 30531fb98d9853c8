"""Which events of a batch are late. `lake/topics/views/late.py` says when an event is late.

Publish times are stored in bronze, so the list of late events does not depend on batches, on the
order in which partitions are read, or on a replay. A count of a batch can only compare with the
messages that were read by then.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from lake.topics.durations import micros
from lake.topics.topic import Topic, snake_case
from lake.topics.views.late import EPOCH
from pulsar_spark.schema import ORDER_FIELDS

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
