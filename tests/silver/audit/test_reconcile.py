"""Tests the counts of a batch, their watermarks, and that counts that do not add up stop silver."""

import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from topic import events

from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from silver.audit.reconcile import BatchAudit, ReconciliationError, TopicCounts, Watermarks
from silver.records.batch_stats import BatchStats

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
HOUR = dt.timedelta(hours=1)
CLICKS = Topic.model_validate(
    {
        **{"name": "clicks", "kind": "events", "key": ["id"], "event_time": "at"},
        "fields": {"id": "long", "at": "timestamp_ms"},
    }
)


def counted(batch: BatchAudit, hours: list[tuple[float, float, str | None]]) -> TopicCounts:
    """Count records, each with its event time and publish time in hours, and its reason."""
    names = ("at", "publish_time")
    columns: dict[str, Any] = {
        name: pa.array([NOON + hour[n] * HOUR for hour in hours], pa.timestamp("us", "UTC"))
        for n, name in enumerate(names)
    }
    rows = pa.table({**columns, "_reason": pa.array([hour[2] for hour in hours], pa.string())})
    stats = BatchStats(messages={"clicks": len(hours)}, size=0)
    topics = TopicFile(topics={"clicks": CLICKS})
    batch.count(cast(Any, None), stats, {"clicks": cast(Any, SimpleNamespace(table=rows))}, topics)
    return batch.topics["clicks"]


def test_good_and_refused_messages_are_counted_with_their_times() -> None:
    found = counted(BatchAudit(4, Watermarks()), [(1, 5, None), (3, 6, None), (9, 7, "bad")])
    assert (found.messages_in, found.decoded, found.quarantined, found.good) == (3, 3, 1, 2)
    assert (found.earliest, found.watermark) == (NOON + HOUR, NOON + 3 * HOUR)
    assert (found.oldest, found.newest) == (NOON + 5 * HOUR, NOON + 7 * HOUR)
    assert found.late == 0


def test_an_event_from_the_future_moves_the_watermark_only_to_its_publish_time() -> None:
    found = counted(BatchAudit(4, Watermarks()), [(100, 5, None)])
    assert found.watermark == NOON + 5 * HOUR


def test_events_before_the_watermark_are_late_and_the_worst_lateness_is_recorded() -> None:
    marks = Watermarks({"clicks": NOON + 2 * HOUR})
    batch = BatchAudit(4, marks)
    found = counted(batch, [(1, 5, None), (0.5, 5, None), (2, 5, None)])
    assert found.late == 2
    found.applied = 3
    [row] = batch.rows()
    assert row["max_lateness_ms"] == 90 * 60 * 1000
    assert row["watermark"] == NOON + 2 * HOUR, "it never moves back"
    assert (row["silver_batch"], row["topic"], row["superseded"]) == (4, "clicks", 0)
    batch.advance()
    assert marks == {"clicks": NOON + 2 * HOUR}


@pytest.mark.parametrize(
    "counts",
    [
        TopicCounts(messages_in=3, decoded=2, applied=2),
        TopicCounts(messages_in=2, decoded=3, applied=2),
        TopicCounts(messages_in=3, decoded=3, applied=4),
        TopicCounts(messages_in=3, decoded=3, quarantined=2, applied=2),
    ],
)
def test_counts_that_do_not_add_up_are_refused_with_the_topic(counts: TopicCounts) -> None:
    batch = BatchAudit(7, Watermarks())
    batch.topics["clicks"] = counts
    with pytest.raises(ReconciliationError, match="Batch 7 of silver does not add up for .*clicks"):
        batch.rows()


def test_totals_are_sums_over_all_topics() -> None:
    batch = BatchAudit(7, Watermarks())
    batch.topics["a"] = TopicCounts(messages_in=3, decoded=3, applied=2, waiting=1)
    batch.topics["b"] = TopicCounts(messages_in=5, decoded=5, quarantined=1, applied=4, late=2)
    assert batch.messages_in == 8
    assert batch.totals() == {
        **{"messages_in": 8, "applied": 6, "superseded": 1, "quarantined": 1},
        **{"waiting": 1, "late": 2},
    }


def test_topics_without_an_event_time_have_no_watermark() -> None:
    [plain] = events("plain").topics.values()
    rows = pa.table(
        {
            "publish_time": pa.array([NOON], pa.timestamp("us", "UTC")),
            "_reason": pa.nulls(1, pa.string()),
        }
    )
    batch = BatchAudit(1, Watermarks())
    decoded = {"plain": cast(Any, SimpleNamespace(table=rows))}
    stats = BatchStats(messages={"plain": 1}, size=0)
    batch.count(cast(Any, None), stats, decoded, TopicFile(topics={"plain": plain}))
    assert batch.topics["plain"].watermark is None
    assert batch.topics["plain"].newest == NOON
