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
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bronze.upkeep import compact
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim_tables
from lake.tables.arrow import DirectTable, OpenTables
from lake.tables.table import TableSpec, match
from lake.topics.topic_file import TopicFile
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from pulsar_spark.schema import ORDER_FIELDS, POSITION_FIELDS
from silver.audit.reconcile import rows_of_batch
from silver.audit.snapshots import SilverSnapshot, latest_snapshot
from silver.contract.tables import (
    CUTS,
    QUARANTINE,
    RECONCILIATION,
    silver_tables,
)
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


def summary(settings: LakeSettings) -> list[tuple[object, ...]]:
    """By topic, reason and status: count, first and last publish time, and a sample."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in _table(settings).rows([*RECORD, "status"]):
        found.setdefault((row["topic"], row["reason"], row["status"]), []).append(row)
    lines: list[tuple[object, ...]] = []
    for group, rows in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        times = sorted(row["publish_time"] for row in rows)
        lines.append((*group, len(rows), times[0], times[-1], _beginning(rows[0]["payload"])))
    return lines


def records(settings: LakeSettings, selection: Selection, limit: int) -> list[tuple[object, ...]]:
    """The newest open records: topic, reason, position, key, payload, publish time."""
    rows = [
        row
        for row in _table(settings).rows(RECORD, "status = 'open'")
        if selection.topic in (None, row["topic"]) and selection.reason in (None, row["reason"])
    ]
    rows.sort(key=lambda row: row["publish_time"], reverse=True)
    shown: list[tuple[object, ...]] = []
    for row in rows[:limit]:
        place = ":".join(str(row["position"][name]) for name in POSITION_FIELDS)
        what = (row["key"], _text(row["payload"]), row["publish_time"])
        shown.append((row["topic"], row["reason"], place, *what))
    return shown


def replay(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, selection: Selection
) -> Counter[str]:
    """Decode open records again with the current topic file, and apply the good ones, each once.

    Returns:
        The changes that were booked: applied, superseded, and quarantined, which is negative if
        fewer records are open now.

    Raises:
        CheckpointError: the silver query is running and must be stopped first, or it was stopped
            within a batch.
        SettingsError: the topic is not declared.
    """
    with _decision(spark, settings, topics, selection) as (refinery, number):
        chosen = QUARANTINE.read(spark, settings).where(selection.column())
        names = [row[0] for row in chosen.select("topic").distinct().collect()]
        if not names:
            return Counter()
        place = [F.col(f"position.{name}").alias(name) for name in ORDER_FIELDS]
        rest = ("key", "payload", "event_time", "publish_time", "schema_version")
        messages = chosen.select(F.col("topic").alias("source"), *place, *rest)
        with refinery.apply_again(messages, names, number) as verdicts:
            (
                QUARANTINE.open(spark, settings)
                .alias("t")
                .merge(verdicts.alias("s"), match(["topic", "position"]))
                .whenMatchedDelete(condition="s.reason IS NULL")
                .whenMatchedUpdate(condition="t.reason <> s.reason", set={"reason": "s.reason"})
                .execute()
            )
        return _book(settings, topics, number)


def discard(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, selection: Selection
) -> Counter[str]:
    """Discard open records. They stay in the quarantine, marked as discarded.

    Returns and raises the same as `replay`.
    """
    with _decision(spark, settings, topics, selection) as (_, number):
        table = QUARANTINE.open(spark, settings)
        table.update(selection.column(), {"status": F.lit("discarded")})
        return _book(settings, topics, number)


@contextlib.contextmanager
def _decision(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, selection: Selection
) -> Iterator[tuple[Refinery, int]]:
    """Hold silver's checkpoint during a decision.

    Yields:
        The refinery, and the batch id under which the decision is booked.
    """
    selection.check(topics)
    checkpoint = claim_tables(spark, settings, QUERY, silver_tables(topics))
    try:
        if topics.kept_views() and checkpoint.unfinished is not None:
            message = (
                f"Silver was stopped within batch {checkpoint.unfinished}, and materialized views "
                "need whole batches. Run `lakehouse silver --available-now` first."
            )
            raise CheckpointError(message)
        refinery = Refinery(settings, topics, checkpoint)
        yield refinery, finish_last(spark, settings, topics, refinery)
    finally:
        checkpoint.release()


def _table(settings: LakeSettings) -> DirectTable:
    if not QUARANTINE.exists(settings):
        message = (
            f"The table {QUARANTINE.full_name} does not exist yet at {QUARANTINE.path(settings)}. "
            "Run `lakehouse silver`, which creates it."
        )
        raise LakehouseError(message)
    return DirectTable(QUARANTINE, settings)


def finish_last(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile, refinery: Refinery
) -> int:
    """Book what an interrupted decision did.

    Returns:
        The batch id of the next decision, a negative number.
    """
    last = _last_number(settings)
    refinery.keep_views(spark, last - 1)
    _book(settings, topics, last - 1)
    return _last_number(settings) - 1


def _last_number(settings: LakeSettings) -> int:
    rows = DirectTable(RECONCILIATION, settings).rows(["silver_batch"], "silver_batch < 0")
    return min((row["silver_batch"] for row in rows), default=0)


def _book(settings: LakeSettings, topics: TopicFile, number: int) -> Counter[str]:
    """Book by topic how the quarantine differs from the audit. Without a difference, book nothing.

    Returns:
        The booked changes over all topics.
    """
    rows, total = [], Counter[str]()
    for topic, change in unbooked(settings).items():
        declared = topics.topics.get(topic)
        change["applied"] = 0
        if declared is not None:
            change["applied"], _ = rows_of_batch(OpenTables(settings), topics, declared, number)
        change["superseded"] = -sum(change.values())
        total.update(change)
        zeros = dict.fromkeys(("messages_in", "waiting", "late"), 0)
        rows.append({"silver_batch": number, "topic": topic, **zeros, **change})
    if rows:
        _append(RECONCILIATION, settings, rows)
        before = latest_snapshot(settings)
        ends = {n: json.loads(p) for n, p in before.positions.items()} if before else {}
        snapshot = SilverSnapshot.now(OpenTables(settings), topics, number, ends)
        _append(CUTS, settings, [snapshot.row()])
    return total


def unbooked(settings: LakeSettings) -> dict[str, dict[str, int]]:
    """How the quarantine differs from the audit: by topic, the changes of the two counts.

    A decision that was interrupted has changed the quarantine, but is not in the audit yet. Topics
    without a difference are left out.
    """
    booked: dict[str, Counter[str]] = {}
    for row in DirectTable(RECONCILIATION, settings).rows(["topic", "quarantined", "discarded"]):
        counts = booked.setdefault(row["topic"], Counter())
        counts.update({name: row[name] for name in ("quarantined", "discarded")})
    now = Counter(
        (row["topic"], row["status"]) for row in _table(settings).rows(["topic", "status"])
    )
    changes = {
        topic: {
            "quarantined": now[topic, "open"] - counts["quarantined"],
            "discarded": now[topic, "discarded"] - counts["discarded"],
        }
        for topic, counts in booked.items()
    }
    return {topic: change for topic, change in changes.items() if any(change.values())}


def _append(table: TableSpec, settings: LakeSettings, rows: list[dict[str, Any]]) -> None:
    direct = DirectTable(table, settings)
    direct.append(rows)
    compact(direct, table.full_name)
