"""Deletes events that are older than their topic's `keep` from silver's tables of events.

The age of an event is that of its message in bronze (`bronze/expiry.py`), so that a rebuild of
silver from the messages that are left gives the same events. An event that misses a lookup is kept
until it is complete.

What is made of events follows: materialized views and models of gold see an expired event as
deleted, because they are what their query gives for the events that are left.
"""

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

import structlog
from pyspark.sql import SparkSession

from bronze.expiry import PUBLISHED, older_than
from lake.tables.lake import Lake
from lake.tables.table import Table
from silver.contract.tables import enriched_table

COMPLETE = "missing_lookups = 0"

log = structlog.get_logger()


class Expired(NamedTuple):
    """The events of a table that are too old.

    since: the instant before which they were published.
    condition: the condition that they meet.
    number: how many there are.
    """

    table: Table
    since: dt.datetime
    condition: str
    number: int


def expire_events(
    spark: SparkSession, lake: Lake, now: dt.datetime, batch_id: int | None = None
) -> bool:
    """Delete the complete events that are too old, each table in one commit.

    Called by maintenance once a day before a batch, whose views then follow, and at the end of a
    rebuild.

    Args:
        spark: the session.
        lake: the lake.
        now: by which the age of an event is judged.
        batch_id: the batch that follows. If it is repeated, rows that it has written are not
            deleted, so that it finds the same rows as the first time.

    Returns:
        Whether there were any.
    """
    found = [*expired(lake, now, batch_id)]
    for each in found:
        each.table.spark(spark).delete(each.condition)
        log.info("old events deleted", table=each.table.full_name, count=each.number)
    return bool(found)


def expired(lake: Lake, now: dt.datetime, batch_id: int | None = None) -> Iterator[Expired]:
    """The events to be deleted of each table that has some. Arguments: see `expire_events`."""
    for topic in lake.topics.events():
        spec = enriched_table(topic, lake.topics)
        since, table = topic.kept_since(now), lake.table(spec)
        if since is None or not lake.owns(spec) or not table.exists():
            continue
        first = table.arrow.oldest(PUBLISHED)
        if first is not None and first >= since:
            continue
        condition = f"{older_than(since)} AND {COMPLETE}"
        if batch_id is not None:
            condition += f" AND silver_batch < {batch_id}"
        if count := table.arrow.count(condition):
            yield Expired(table, since, condition, count)
