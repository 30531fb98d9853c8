"""Shows the records in quarantine, and replays them after a fix or discards them.

These decisions do not run beside the silver query. Each claims its checkpoint, because a table has
only one writer (invariant 5). What a decision did is read from the tables, and does not depend on
what it was meant to do. An interrupted decision is therefore completed and booked correctly by
running it again.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze.upkeep import compact
from lake.streams.checkpoint import Checkpoint, claim_tables
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec, as_messages, bronze_table, match
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from pulsar_spark.schema import ENVELOPE, ORDER_FIELDS, POSITION_FIELDS
from silver.audit.reconcile import rows_of_batch
from silver.audit.snapshots import SilverSnapshot, latest_snapshot
from silver.audit.totals import is_open
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    silver_tables,
)
from silver.records.computed import check_expressions
from silver.refine import QUERY, Refinery

SAMPLE_CHARACTERS = 60
RECORD = ("topic", "reason", "position", "key", "payload", "publish_time")


@dataclass(frozen=True)
class Selection:
    """Which records are meant: those of a topic, those with a reason, or all."""

    topic: str | None = None
    reason: str | None = None

    def column(self) -> Any:
        """The selection as a condition on the quarantine. Discarded records are excluded."""
        condition = F.col("status") == "open"
        for name in ("topic", "reason"):
            if getattr(self, name) is not None:
                condition = condition & (F.col(name) == getattr(self, name))
        return condition

    def check(self, topics: TopicFile) -> None:
        """Check that the topic is declared.

        Raises:
            SettingsError: the topic is not declared.
        """
        if self.topic is not None and self.topic not in topics.topics:
            known = ", ".join(topics.topics)
            message = f"The topic '{self.topic}' is not in the topic file, which declares {known}."
            raise SettingsError(message)


def _text(payload: bytes | None) -> str:
    return (payload or b"").decode("utf-8", "backslashreplace")


def _beginning(payload: bytes | None) -> str:
    text = _text(payload)
    return text if len(text) <= SAMPLE_CHARACTERS else text[: SAMPLE_CHARACTERS - 1] + "…"


def summary(lake: Lake) -> list[tuple[object, ...]]:
    """By topic, reason and status: count, first and last publish time, and a sample."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in _table(lake).rows([*RECORD, "status"]):
        found.setdefault((row["topic"], row["reason"], row["status"]), []).append(row)
    lines: list[tuple[object, ...]] = []
    for group, rows in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        times = sorted(row["publish_time"] for row in rows)
        lines.append((*group, len(rows), times[0], times[-1], _beginning(rows[0]["payload"])))
    return lines


def records(lake: Lake, selection: Selection, limit: int) -> list[tuple[object, ...]]:
    """The newest open records: topic, reason, position, key, payload, publish time."""
    rows = [
        row
        for row in _table(lake).rows(RECORD, "status = 'open'")
        if selection.topic in (None, row["topic"]) and selection.reason in (None, row["reason"])
    ]
    rows.sort(key=lambda row: row["publish_time"], reverse=True)
    shown: list[tuple[object, ...]] = []
    for row in rows[:limit]:
        place = ":".join(str(row["position"][name]) for name in POSITION_FIELDS)
        what = (row["key"], _text(row["payload"]), row["publish_time"])
        shown.append((row["topic"], row["reason"], place, *what))
    return shown


def replay(spark: SparkSession, lake: Lake, selection: Selection) -> Counter[str]:
    """Decode open records again with the current topic file, and apply the good ones, each once.

    Returns:
        The changes that were booked: applied, superseded, and quarantined, which is negative if
        fewer records are open now.

    Raises:
        CheckpointError: the silver query is running and must be stopped first, or it was stopped
            within a batch.
        SettingsError: the topic is not declared, or Spark refuses the expression of a computed
            field.
    """
    with _decision(spark, lake, selection) as checkpoint:
        check_expressions(spark, lake.topics.topics.values())
        refinery = Refinery(lake, checkpoint)
        number = finish_last(spark, lake, refinery)
        chosen = lake.table(QUARANTINE).rows(spark).where(selection.column())
        names = [row[0] for row in chosen.select("topic").distinct().collect()]
        if not names:
            return Counter()
        messages = reduce(
            DataFrame.unionByName,
            (_messages(spark, lake, chosen, name) for name in names),
        )
        with refinery.apply_again(messages, names, number) as verdicts:
            (
                lake.table(QUARANTINE)
                .spark(spark)
                .alias("t")
                .merge(verdicts.alias("s"), match(["topic", "position"]))
                .whenMatchedDelete(condition="s.reason IS NULL")
                .whenMatchedUpdate(condition="t.reason <> s.reason", set={"reason": "s.reason"})
                .execute()
            )
        return _book(lake, number)


def _messages(spark: SparkSession, lake: Lake, chosen: DataFrame, name: str) -> DataFrame:
    """The records of a topic as messages of bronze.

    The quarantine does not hold the properties of a message, and other metadata that few topics
    declare fields of. For these topics, they are read from bronze. A record that bronze lacks then
    stays in the quarantine.
    """
    theirs = chosen.where(F.col("topic") == name)
    place = [F.col(f"position.{each}").alias(each) for each in ORDER_FIELDS]
    rest = ("key", "payload", "event_time", "publish_time", "schema_version")
    messages = theirs.select(F.lit(name).alias("source"), *place, *rest)
    absent = [column for column in ENVELOPE if column.name not in messages.columns]
    if not lake.topics.topics[name].message_fields:
        return messages.withColumns({each.name: F.lit(None).cast(each.type) for each in absent})
    first, last = theirs.agg(F.min("publish_time"), F.max("publish_time")).collect()[0]
    bronze = as_messages(lake.table(bronze_table(name)).rows(spark))
    bronze = bronze.where(F.col("publish_time").between(first, last))
    metadata = bronze.select(*POSITION_FIELDS, *(each.name for each in absent))
    return metadata.join(F.broadcast(messages), [*POSITION_FIELDS])


def discard_needs_spark(lake: Lake) -> bool:
    """Whether `discard` may have to complete the materialized views of an interrupted replay."""
    return bool(lake.topics.kept_views())


def discard(spark: SparkSession | None, lake: Lake, selection: Selection) -> Counter[str]:
    """Discard open records. They stay in the quarantine, marked as discarded.

    Args:
        spark: the session; None if `discard_needs_spark` is false.
        lake: the lake.
        selection: which records.

    Returns and raises the same as `replay`.
    """
    with _decision(spark, lake, selection) as checkpoint:
        if spark is None:
            number = _book_last(lake)
        else:
            number = finish_last(spark, lake, Refinery(lake, checkpoint))
        is_meant = is_open(selection.topic, selection.reason)
        _table(lake).update(is_meant, {"status": "discarded"})
        return _book(lake, number)


@contextlib.contextmanager
def _decision(spark: SparkSession | None, lake: Lake, selection: Selection) -> Iterator[Checkpoint]:
    """Hold silver's checkpoint during a decision."""
    selection.check(lake.topics)
    checkpoint = claim_tables(spark, lake, QUERY, silver_tables(lake.topics))
    try:
        if lake.topics.kept_views() and checkpoint.unfinished is not None:
            message = (
                f"Silver was stopped within batch {checkpoint.unfinished}, and materialized views "
                "need whole batches. Run `lakehouse silver --available-now` first."
            )
            raise CheckpointError(message)
        yield checkpoint
    finally:
        checkpoint.release()


def _table(lake: Lake) -> ArrowTable:
    table = lake.table(QUARANTINE)
    if not table.exists():
        message = (
            f"The table {table.full_name} does not exist yet at {table.path}. Run `lakehouse "
            "silver`, which creates it."
        )
        raise LakehouseError(message)
    return table.arrow


def finish_last(spark: SparkSession, lake: Lake, refinery: Refinery) -> int:
    """Complete and book an interrupted decision.

    Returns:
        The batch id of the next decision, a negative number.
    """
    refinery.keep_views(spark, _last_number(lake) - 1)
    return _book_last(lake)


def _book_last(lake: Lake) -> int:
    """Book what an interrupted decision did. Returns the batch id of the next decision."""
    _book(lake, _last_number(lake) - 1)
    return _last_number(lake) - 1


def _last_number(lake: Lake) -> int:
    rows = lake.table(RECONCILIATION).arrow.rows(["silver_batch"], "silver_batch < 0")
    return min((row["silver_batch"] for row in rows), default=0)


def _book(lake: Lake, number: int) -> Counter[str]:
    """Book by topic how the quarantine differs from the audit. Without a difference, book nothing.

    Returns:
        The booked changes over all topics.
    """
    rows, total = [], Counter[str]()
    for topic, change in unbooked(lake).items():
        declared = lake.topics.topics.get(topic)
        change["applied"] = 0
        if declared is not None:
            change["applied"], _ = rows_of_batch(lake, declared, number)
        change["superseded"] = -sum(change.values())
        total.update(change)
        zeros = dict.fromkeys(("messages_in", "waiting", "late"), 0)
        rows.append({"silver_batch": number, "topic": topic, **zeros, **change})
    if rows:
        _append(RECONCILIATION, lake, rows)
        before = latest_snapshot(lake)
        ends = {n: json.loads(p) for n, p in before.positions.items()} if before else {}
        snapshot = SilverSnapshot.now(lake, number, ends)
        _append(CUTS, lake, [snapshot.row()])
    return total


def unbooked(lake: Lake) -> dict[str, dict[str, int]]:
    """How the quarantine differs from the audit: by topic, the changes of the two counts.

    A decision that was interrupted has changed the quarantine, but is not in the audit yet. Topics
    without a difference are left out.
    """
    booked: dict[str, Counter[str]] = {}
    for row in lake.table(RECONCILIATION).arrow.rows(["topic", "quarantined", "discarded"]):
        counts = booked.setdefault(row["topic"], Counter())
        counts.update({name: row[name] for name in ("quarantined", "discarded")})
    now = Counter((row["topic"], row["status"]) for row in _table(lake).rows(["topic", "status"]))
    changes = {
        topic: {
            "quarantined": now[topic, "open"] - counts["quarantined"],
            "discarded": now[topic, "discarded"] - counts["discarded"],
        }
        for topic, counts in booked.items()
    }
    return {topic: change for topic, change in changes.items() if any(change.values())}


def _append(table: TableSpec, lake: Lake, rows: list[dict[str, Any]]) -> None:
    direct = lake.table(table).arrow
    direct.append(rows)
    compact(direct, table.full_name)
