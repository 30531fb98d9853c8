"""The audit of a batch (invariants 2 and 7): a message is applied, superseded or quarantined."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake.observe import metrics
from lake.tables.lake import Lake
from lake.topics.topic import Topic, snake_case
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import LakehouseError
from silver.audit.lateness import judged_columns, late_by
from silver.contract.columns import ELEMENT, REASON
from silver.contract.tables import RECONCILIATION, enriched_table, state_table
from silver.records.batch import Decoded
from silver.records.batch_stats import BatchStats

INSTANT = pa.timestamp("us", "UTC")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class ReconciliationError(LakehouseError):
    """The counts of a batch do not add up."""


class Watermarks(dict[str, dt.datetime]):
    """The latest event time of each topic in all batches so far. Earlier events are late."""

    @classmethod
    def read(cls, lake: Lake, before: int) -> "Watermarks":
        """Read the watermarks before the batch `before` from the audit."""
        found = cls()
        condition = f"silver_batch < {before} AND watermark IS NOT NULL"
        for row in lake.table(RECONCILIATION).arrow.rows(["topic", "watermark"], condition):
            found.advance(row["topic"], row["watermark"])
        return found

    def after(self, topic: str, seen: dt.datetime | None) -> dt.datetime | None:
        """A topic's watermark after the event time `seen`. It never moves back."""
        return max(filter(None, (self.get(topic), seen)), default=None)

    def advance(self, topic: str, seen: dt.datetime | None) -> None:
        """Advance a topic's watermark to the event time `seen`, if that is later."""
        if (latest := self.after(topic, seen)) is not None:
            self[topic] = latest


@dataclass
class TopicCounts:
    """The counts of one topic in one batch. `messages_in` is counted in bronze, the rest in silver.

    waiting: applied rows that miss a lookup.
    late: messages whose event time is before the watermark of the previous batches; for a topic
        with a lateness, as `lateness.py` judges them.
    late_by: how much the latest of them is before its watermark, if that was judged by message.
    watermark: the latest event time in the batch.
    earliest: the earliest event time in the batch.
    oldest, newest: publish times of the first and the last message.
    """

    messages_in: int = 0
    decoded: int = 0
    quarantined: int = 0
    applied: int = 0
    waiting: int = 0
    late: int = 0
    late_by: dt.timedelta | None = None
    watermark: dt.datetime | None = None
    earliest: dt.datetime | None = None
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None

    @property
    def good(self) -> int:
        """Messages that could be decoded."""
        return self.decoded - self.quarantined

    @property
    def superseded(self) -> int:
        """Good messages that did not make or change a row: stale, or sent twice."""
        return self.good - self.applied


class BatchAudit:
    """The counts of one batch by topic."""

    def __init__(self, batch_id: int, watermarks: Watermarks) -> None:
        self.batch_id = batch_id
        self.topics: dict[str, TopicCounts] = {}
        self._watermarks = watermarks

    def count(
        self,
        batch: DataFrame,
        stats: BatchStats | None,
        decoded: Mapping[str, Decoded],
        topics: TopicFile,
    ) -> None:
        """Count the messages that came in and the rows that were decoded.

        The messages are counted from bronze's logs if possible. If Spark counts, this is the one
        job that fills the cache of all rows.
        """
        for name, messages in (stats.messages if stats else {}).items():
            if messages:
                self.topics[name] = TopicCounts(messages_in=messages)
        if stats and stats.are_few:
            for name, rows in decoded.items():
                self._count_in_driver(rows.table, topics.topics[name])
            return
        parts = [self._decoded(rows.rows, topics.topics[n]) for n, rows in decoded.items()]
        if not stats:
            parts.append(batch.groupBy("source").agg(F.count("*"), *(F.lit(None) for _ in COUNTS)))
        for row in reduce(DataFrame.unionAll, parts).collect() if parts else []:
            name, messages_in, *found = row
            if messages_in:
                self.topics.setdefault(name, TopicCounts()).messages_in = messages_in
            elif found[0]:
                counts = self.topics.setdefault(name, TopicCounts())
                counts.decoded, counts.quarantined, counts.late = found[:3]
                instants = map(_instant, found[3:])
                counts.watermark, counts.earliest, counts.oldest, counts.newest = instants
                if (topic := topics.topics[name]).lists_late:
                    good = _one_row_each(decoded[name].rows, topic).where(F.col(REASON).isNull())
                    self._judge(good.select(judged_columns(topic)).toArrow(), topic, counts)

    def _count_in_driver(self, rows: pa.Table, topic: Topic) -> None:
        """As `_decoded`, for rows in the driver."""
        if not rows.num_rows:
            return
        counts = self.topics.setdefault(topic.name, TopicCounts())
        if topic.explode:  # one row of each message
            rows = rows.filter(pc.equal(pc.fill_null(rows[ELEMENT], 0), 0))
        counts.decoded = rows.num_rows
        counts.quarantined = rows.num_rows - rows[REASON].null_count
        published = pc.cast(rows["publish_time"], INSTANT)
        counts.oldest, counts.newest = (each.as_py() for each in pc.min_max(published).values())
        if topic.kind == "events" and topic.event_time:
            is_good = pc.is_null(rows[REASON])
            at = pc.cast(rows[snake_case(topic.event_time)], INSTANT).filter(is_good)
            published = published.filter(is_good)
            moved = pc.if_else(pc.less(at, published), at, published)
            counts.watermark, counts.earliest = pc.max(moved).as_py(), pc.min(at).as_py()
            if topic.lists_late:
                good = rows.select(judged_columns(topic)).filter(is_good)
                self._judge(good, topic, counts)
            elif known := self._watermarks.get(topic.name):
                counts.late = pc.sum(pc.less(at, pa.scalar(known, INSTANT))).as_py() or 0

    def _judge(self, rows: pa.Table, topic: Topic, counts: TopicCounts) -> None:
        """Count the late events of a topic with a lateness."""
        found = late_by(rows, self._watermarks.get(topic.name), topic.lateness)
        counts.late = len(found)
        if counts.late:
            counts.late_by = dt.timedelta(microseconds=pc.max(found).as_py())

    def _decoded(self, rows: DataFrame, topic: Topic) -> DataFrame:
        rows = _one_row_each(rows, topic)
        at, known = F.lit(None).cast("timestamp"), self._watermarks.get(topic.name)
        if topic.kind == "events" and topic.event_time:
            at = F.when(F.col(REASON).isNull(), F.col(snake_case(topic.event_time)))
        late = F.count_if(at < F.lit(known)) if known else F.lit(0)
        # An event time in the future would make all later messages late.
        moved = F.when(at.isNotNull(), F.least(at, F.col("publish_time")))
        instants = F.max(moved), F.min(at), F.min("publish_time"), F.max("publish_time")
        micros = [F.unix_micros(each) for each in instants]
        counts: list[Column] = [F.count("*"), F.count(REASON), late, *micros]
        return rows.agg(F.lit(topic.name), F.lit(None), *counts)

    def count_applied(self, lake: Lake) -> None:
        """Count the rows with this batch id. A replay writes nothing, but counts the same."""
        for name, counts in self.topics.items():
            if counts.good:
                written = rows_of_batch(lake, lake.topics.topics[name], self.batch_id)
                counts.applied, counts.waiting = written

    @property
    def messages_in(self) -> int:
        """The number of messages that came in, over all topics."""
        return sum(counts.messages_in for counts in self.topics.values())

    def totals(self) -> dict[str, int]:
        """Counts over all topics, for the log."""
        every = self.topics.values()
        return {
            name: sum(getattr(counts, name) for counts in every)
            for name in ("messages_in", "applied", "superseded", "quarantined", "waiting", "late")
        }

    def rows(self) -> list[dict[str, Any]]:
        """Rows for `silver.reconciliation`.

        Raises:
            ReconciliationError: the counts of a topic do not add up.
        """
        rows = []
        for name, counts in self.topics.items():
            if counts.decoded != counts.messages_in or counts.superseded < 0:
                message = (
                    f"Batch {self.batch_id} of silver does not add up for topic {name}: {counts}. "
                    "A message was lost or duplicated, so the batch was not recorded. Leave bronze "
                    "and silver unchanged and report this, or rebuild silver from bronze."
                )
                raise ReconciliationError(message)
            before = self._watermarks.get(name)
            earliest = counts.earliest if counts.late else None
            gap = counts.late_by or (before - earliest if before and earliest else None)
            counted = {n: getattr(counts, n) for n in COUNTED}
            lateness = {
                "watermark": self._watermarks.after(name, counts.watermark),
                "max_lateness_ms": gap // dt.timedelta(milliseconds=1) if gap else None,
            }
            rows.append(
                {
                    "silver_batch": self.batch_id,
                    "topic": name,
                    "discarded": 0,
                    **counted,
                    **lateness,
                }
            )
        return rows

    def report(self, now: dt.datetime) -> None:
        """Report to the metrics how old the messages are now that they can be read."""
        for name, counts in self.topics.items():
            if counts.oldest and counts.newest:
                instants = (each.timestamp() for each in (counts.oldest, counts.newest, now))
                metrics.readable(name, *instants)

    def advance(self) -> None:
        """Advance the watermarks. Called when the audit of the batch has been written."""
        for name, counts in self.topics.items():
            self._watermarks.advance(name, counts.watermark)


def rows_of_batch(lake: Lake, topic: Topic, batch_id: int) -> tuple[int, int]:
    """How many rows of a topic a batch made or changed, and how many of them miss a lookup.

    If a topic is exploded, the messages of these rows are counted.
    """
    if topic.kind == "changelog":
        return lake.table(state_table(topic)).arrow.count(f"silver_batch = {batch_id}"), 0
    table = lake.table(enriched_table(topic, lake.topics)).arrow
    if topic.explode:
        rows = table.rows(["missing_lookups", "position"], f"arrived_batch = {batch_id}")
        found = [((*row["position"].values(),), row["missing_lookups"] > 0) for row in rows]
        waiting = {message for message, is_missing in found if is_missing}
        return len({message for message, _ in found}), len(waiting)
    missing = table.table(["missing_lookups"], f"arrived_batch = {batch_id}")["missing_lookups"]
    return len(missing), pc.sum(pc.greater(missing, 0)).as_py() or 0


COUNTED = ("messages_in", "applied", "superseded", "quarantined", "waiting", "late")
COUNTS = ("decoded", "quarantined", "late", "watermark", "earliest", "oldest", "newest")


def _one_row_each(rows: DataFrame, topic: Topic) -> DataFrame:
    """One row of each message, of which an exploded one has several."""
    return rows.where(F.coalesce(ELEMENT, F.lit(0)) == 0) if topic.explode else rows


def _instant(micros: int | None) -> dt.datetime | None:
    return None if micros is None else EPOCH + dt.timedelta(microseconds=micros)
