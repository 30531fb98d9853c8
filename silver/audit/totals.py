"""Totals of the audit, and how many rows miss a lookup, for `status`, `plan` and the metrics."""

from collections import Counter
from itertools import pairwise

import pyarrow.compute as pc

from lake.tables.arrow import NewRows
from lake.tables.keys import literal_of
from lake.tables.lake import Lake
from lake.tables.table import Table
from lake.topics.views.joins import JoinOf
from silver.contract.tables import CUTS, QUARANTINE, RECONCILIATION

OUTCOMES = ("applied", "superseded", "quarantined", "discarded")
COUNTS = ("messages_in", *OUTCOMES, "waiting", "late")


def is_open(topic: str | None, reason: str | None) -> str:
    """The condition that a record in quarantine is open, in DataFusion's SQL.

    It is for the records of a topic and with a reason; for those of all if None.
    """
    chosen = {"status": "open", "topic": topic, "reason": reason}
    given = [f"{name} = {literal_of(value)}" for name, value in chosen.items() if value is not None]
    return " and ".join(given)


def count_open(lake: Lake, topic: str | None, reason: str | None) -> int:
    """The number of open records in quarantine, of a topic and a reason or, if None, of all."""
    table = lake.table(QUARANTINE)
    return table.arrow.count(is_open(topic, reason)) if table.exists() else 0


class AuditTotals:
    """Totals of the audit over all batches. Each `read` reads only new rows."""

    def __init__(self, lake: Lake) -> None:
        columns = ("silver_batch", "topic", *COUNTS)
        self._lake = lake
        self._new = NewRows(columns, "silver_batch")
        self._batches: dict[str, Counter[str]] = {}
        self._decisions: dict[str, Counter[str]] = {}

    def read(self) -> None:
        """Bring the totals up to date."""
        rows, is_all = self._new.read(self._lake.table(RECONCILIATION).arrow)
        if is_all:
            self._batches, self._decisions = {}, {}
        rows = rows.append_column("is_decision", pc.less(rows["silver_batch"], 0))
        sums = rows.group_by(["topic", "is_decision"]).aggregate([(n, "sum") for n in COUNTS])
        for row in sums.to_pylist():
            kept = self._decisions if row["is_decision"] else self._batches
            counts = kept.setdefault(row["topic"], Counter())
            counts.update({name: row[f"{name}_sum"] for name in COUNTS})

    def of_batches(self, topic: str) -> Counter[str]:
        """A topic's counts over all batches of the query. They only grow."""
        return self._batches.get(topic, Counter())

    def now(self, topic: str) -> Counter[str]:
        """A topic's current counts, including later decisions about quarantined records."""
        both = Counter(self.of_batches(topic))
        both.update(self._decisions.get(topic, {}))
        return both

    @property
    def topics(self) -> set[str]:
        """The topics that the audit has counted."""
        return {*self._batches, *self._decisions}


def highest_rate(lake: Lake) -> float | None:
    """The most messages per second that silver has read in a batch; None if it is not known.

    The time between two snapshots is an upper bound of what the second batch took, so silver may be
    faster. `lakehouse plan` estimates from it how long a rebuild takes.
    """
    audit, cuts = lake.table(RECONCILIATION), lake.table(CUTS)
    if not (audit.exists() and cuts.exists()):
        return None
    read = Counter[int]()
    for row in audit.arrow.rows(["silver_batch", "messages_in"], "silver_batch >= 0"):
        read[row["silver_batch"]] += row["messages_in"]
    rows = cuts.arrow.rows(["silver_batch", "committed_at"], "silver_batch >= 0")
    ends = sorted((row["silver_batch"], row["committed_at"]) for row in rows)
    rates = [
        read[batch] / (end - begin).total_seconds()
        for (before, begin), (batch, end) in pairwise(ends)
        if batch == before + 1
    ]
    return max(rates, default=None) or None


def count_missing(table: Table, lookup: str) -> int:
    """The number of rows of an enriched table that miss a lookup.

    These are few, and file statistics let the reader skip most of the others.
    """
    condition = f"missing_lookups > 0 AND `{lookup}_position` IS NULL"
    return table.arrow.count(condition)


def count_without_partner(table: Table, join: JoinOf) -> int:
    """The number of rows of a join's table that have no partner."""
    return table.arrow.count(join.is_missing)
