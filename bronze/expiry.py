"""Deletes messages that are older than their topic's `keep` from bronze.

The topic's own query does this between two batches (invariant 5), once a day. A message stays,
however old it is, as long as silver needs it:

- Silver has not read it yet. Files that silver has not reached are left alone.
- It is open in the quarantine, or made an event that misses a lookup.
- The state of a changelog is made of it. Of a changelog, only superseded messages are deleted, so
  a rebuild of silver gives the same state.

Silver does not read the commits (`skipChangeCommits`), and deletes its events by the same rule
(`silver/expiry.py`). The tables of silver are read here by name, because only what they hold tells
which messages silver needs.
"""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import next_to_read
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import Table
from lake.topics.topic import Topic
from pulsar_spark.schema import POSITION_FIELDS

PUBLISHED = "publish_time"
EXPIRED = "lakehouse.expired"  # property: the number of messages deleted
MOST_ROWS = 5_000_000  # that one commit deletes; their positions are in the driver's memory
SHORTEST = dt.timedelta(minutes=1)

log = structlog.get_logger()


def older_than(instant: dt.datetime) -> str:
    """The condition for rows that were published before an instant, for Spark and DataFusion."""
    return f"{PUBLISHED} < '{instant.astimezone(dt.timezone.utc).isoformat()}'"


def expire_messages(lake: Lake, topic: Topic, now: dt.datetime) -> int:
    """Delete the messages of a topic that are too old and that silver does not need.

    Called when bronze starts, and once a day by the upkeep of the table. If it is repeated, it
    finds nothing. Many messages are deleted in several steps, of one commit each.

    Returns:
        The number of messages deleted. 0 if all are kept, or if silver has not read any.
    """
    table = lake.table(bronze_table(topic.name))
    end = _end(lake.settings, table, topic.kept_since(now))
    if end is None:
        return 0
    bronze, deleted = table.arrow, 0
    needed = needed_by_silver(lake, topic, end)
    for within in _steps(bronze, None, end):
        gone = _not_needed(bronze, within, needed)
        if gone.num_rows:
            bronze.delete_rows(gone, within)
            deleted += gone.num_rows
    if deleted:
        bronze.set_configuration(EXPIRED, str(expired_messages(bronze) + deleted))
        log.info("old messages deleted", table=table.full_name, count=deleted, before=str(end))
    return deleted


def expired_messages(bronze: ArrowTable) -> int:
    """How many messages were deleted from a table because of their age, for metrics.

    Fewer if a process was killed between deleting and counting.
    """
    return int(bronze.configuration(EXPIRED) or 0)


def _steps(bronze: ArrowTable, begin: dt.datetime | None, end: dt.datetime) -> Iterator[str]:
    """Conditions for the messages between two instants, of which each holds for a limited number.

    They are halves of halves of the time. `begin` is None for the oldest message.
    """
    after = f"{PUBLISHED} >= '{begin.isoformat()}' AND " if begin else ""
    within = f"{after}{older_than(end)}"
    count = bronze.count(within)
    if not count:
        return
    if begin is None:
        begin = bronze.oldest(PUBLISHED)
    if count <= MOST_ROWS or begin is None or end - begin <= SHORTEST:
        yield within
        return
    middle = begin + (end - begin) / 2
    yield from _steps(bronze, begin, middle)
    yield from _steps(bronze, middle, end)


def _end(settings: LakeSettings, table: Table, since: dt.datetime | None) -> dt.datetime | None:
    """The instant before which messages may be deleted; None if there is none.

    No message that silver has not read was published before it. Versions that delete messages or
    compact files have none, but a stream does not pass them before it reads the next message.
    """
    if since is None:
        return None
    first = table.arrow.oldest(PUBLISHED)
    if first is None or first >= since:
        return None
    read = next_to_read(settings, table.arrow.id)
    if not read or None in read:
        return None
    begin = min(each for each in read if each is not None)
    for version in range(begin, table.newest_version() + 1):
        unread = table.changes(version)
        if unread is None:  # silver is so far behind that the log has lost the version
            return None
        for file in unread.appended:
            stats = json.loads(file.get("stats") or "{}")
            published = stats.get("minValues", {}).get(PUBLISHED)
            if published is None:
                return None
            since = min(since, _instant(published))
    return since


def _instant(text: str) -> dt.datetime:
    """An instant in the statistics of a file, such as `2026-01-02T00:00:00.5Z`."""
    found: dt.datetime = pa.scalar(text).cast(pa.timestamp("us", "UTC")).as_py()
    return found


def needed_by_silver(lake: Lake, topic: Topic, end: dt.datetime) -> pa.Table:
    """The positions of the messages before an instant that silver needs, however old they are."""
    is_old = older_than(end)
    made_of = [("quarantine", f"topic = '{topic.name}' AND status = 'open' AND {is_old}")]
    if topic.kind == "events":
        made_of.append((f"enriched_{topic.name}", f"missing_lookups > 0 AND {is_old}"))
    else:
        made_of.append((f"{topic.name}_state", is_old))
    found = [
        _positions(lake.named("silver", name).arrow.table(["position"], condition))
        for name, condition in made_of
    ]
    return pa.concat_tables(found)


def _positions(rows: pa.Table) -> pa.Table:
    columns = [pc.struct_field(rows["position"], name) for name in POSITION_FIELDS]
    return pa.table(columns, list(POSITION_FIELDS))


def _not_needed(bronze: ArrowTable, condition: str, needed: pa.Table) -> pa.Table:
    """The positions of the messages that meet a condition and that silver does not need."""
    there = bronze.table(POSITION_FIELDS, condition).select(list(POSITION_FIELDS))
    return there.join(needed.cast(there.schema), list(POSITION_FIELDS), join_type="left anti")


@dataclass(frozen=True)
class Standing:
    """What `keep` means for a topic now.

    since: the instant before which messages are too old.
    oldest: when the oldest message in bronze was published; None if there is none.
    old: the number of messages that are too old.
    needed: the number of those that silver needs.
    """

    since: dt.datetime
    oldest: dt.datetime | None
    old: int
    needed: int


def standing(lake: Lake, topic: Topic, now: dt.datetime) -> Standing | None:
    """What `keep` means for a topic now; None without a `keep` or a bronze table.

    Called by `lakehouse plan` and `doctor`.
    """
    since, table = topic.kept_since(now), lake.table(bronze_table(topic.name))
    if since is None or not table.exists():
        return None
    bronze, condition = table.arrow, older_than(since)
    first = bronze.oldest(PUBLISHED)
    old = bronze.count(condition) if first is not None and first < since else 0
    needed = old
    if old and lake.named("silver", "quarantine").exists():
        gone = _not_needed(bronze, condition, needed_by_silver(lake, topic, since))
        needed -= gone.num_rows
    return Standing(since, first, old, needed)
