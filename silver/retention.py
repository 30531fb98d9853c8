"""Removes old batches from the audit and the snapshots, which would otherwise grow with each batch.

A snapshot is useful while the table versions that it names are kept. Of the audit of old batches,
only the totals are useful.
"""

import datetime as dt
from itertools import groupby
from typing import Any

from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from silver.audit.totals import COUNTS
from silver.contract.tables import CUTS, RECONCILIATION


def drop_old_batches(lake: Lake, now: dt.datetime) -> None:
    """Delete old snapshots, and reduce the audit of their batches to one row per topic.

    Snapshots are old after `history_days`. The latest one is never deleted. Called by maintenance
    between two batches.

    Each step is one commit. The audit comes first, because the snapshots tell which batches are
    old. After a crash in between, the snapshots are deleted the next time.
    """
    cuts = lake.table(CUTS).arrow
    latest = cuts.latest("committed_at", ["committed_at"])
    if latest is None:
        return
    end = min(now - dt.timedelta(days=lake.settings.history_days), latest["committed_at"])
    old = f"committed_at < '{end.isoformat()}'"
    batches = [row["silver_batch"] for row in cuts.rows(["silver_batch"], old)]
    if not batches:
        return
    _fold(lake.table(RECONCILIATION).arrow, max(batches))
    cuts.delete(old)


def _fold(audit: ArrowTable, last: int) -> None:
    """Replace the rows of the batches from 0 to `last` by one row per topic."""
    of_them = f"silver_batch >= 0 AND silver_batch <= {last}"
    names = [column.name for column in RECONCILIATION.columns]
    rows = sorted(audit.rows(names, of_them), key=lambda row: row["topic"])
    if rows:
        topics = groupby(rows, key=lambda row: row["topic"])
        audit.delete(of_them, [_sum(topic, last, list(each)) for topic, each in topics])


def _sum(topic: str, last: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {name: sum(row[name] for row in rows) for name in COUNTS}
    latest = {
        name: max((row[name] for row in rows if row[name] is not None), default=None)
        for name in ("watermark", "max_lateness_ms")
    }
    return {"silver_batch": last, "topic": topic, **counts, **latest}
