"""`lakehouse status`: rows, age and lag of each table, and what is pending. Needs no Spark."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass

import pyarrow.compute as pc

from bronze.lag import topic_lag
from lake.settings.settings import LakeSettings
from lake.tables.arrow import DirectTable
from lake.tables.log import TableFiles
from lake.tables.table import TableSpec, bronze_table, delta_tables
from lake.topics.topic_file import TopicFile
from lakehouse.runtime.broker import broker_answers
from pulsar_spark.broker.admin import PulsarAdmin
from silver.audit.totals import OUTCOMES, AuditTotals, count_missing
from silver.contract.tables import QUARANTINE, RECONCILIATION, enriched_table, state_table


@dataclass(frozen=True)
class TableStatus:
    """One line of the status. A value is None if it is unknown or does not apply to the table."""

    table: str
    rows: int | None
    newest: dt.datetime | None = None
    lag_messages: int | None = None
    note: str = ""

    def cells(self, now: dt.datetime) -> list[object]:
        """The cells of the printed row, in the order of `COLUMNS`."""
        age = (
            None if self.newest is None else f"{max((now - self.newest).total_seconds(), 0):.0f} s"
        )
        return [self.table, self.rows, age, self.lag_messages, self.note]


COLUMNS = ("table", "rows", "newest message", "lag (messages)", "note")


def lake_status(
    settings: LakeSettings, topics: TopicFile, audit: AuditTotals | None = None
) -> list[TableStatus]:
    """The status of all tables. The lag is None while no broker answers.

    A caller that refreshes the status passes the same `audit` each time, so that only new audit
    rows are read.
    """
    return [
        *_bronze(settings, topics),
        *_silver(settings, topics, audit or AuditTotals(settings)),
        *_gold(settings),
    ]


def _bronze(settings: LakeSettings, topics: TopicFile) -> list[TableStatus]:
    lines = []
    answers = broker_answers(settings)
    with PulsarAdmin(settings.connection) as admin:
        for topic in topics.topics.values():
            rows, newest = _count(settings, bronze_table(topic.name))
            lag = None
            if answers:
                lag = topic_lag(admin, settings, topic.name).messages(rows or 0)
            note = "" if answers else "no broker answers"
            lines.append(TableStatus(f"bronze.{topic.name}", rows, newest, lag, note))
    return lines


def _silver(settings: LakeSettings, topics: TopicFile, audit: AuditTotals) -> list[TableStatus]:
    lines = []
    for topic in topics.changelogs():
        table = state_table(topic)
        _, newest = _count(settings, table)
        deleted = _matching(
            settings, table, "is_deleted AND mark IS NULL" if topic.has_marks else "is_deleted"
        )
        live = _matching(settings, table, "NOT is_deleted")
        note = f"{deleted} deleted" if deleted else ""
        lines.append(TableStatus(f"silver.{topic.name}", live, newest, note=note))
    for topic in topics.events():
        table = enriched_table(topic, topics)
        rows, newest = _count(settings, table)
        lines.append(TableStatus(table.full_name, rows, newest))
        for lookup in topic.lookups:
            missing = count_missing(settings, table, lookup) if rows is not None else None
            lines.append(TableStatus(f"silver.missing_{lookup}", missing))
    quarantined, newest = _count(settings, QUARANTINE)
    lines.append(TableStatus(QUARANTINE.full_name, quarantined, newest))
    lines.append(TableStatus(RECONCILIATION.full_name, *_audit(settings, audit)))
    return lines


def _audit(settings: LakeSettings, audit: AuditTotals) -> tuple[int | None, None, None, str]:
    """Number of audit rows, and a note with their totals over all batches."""
    if not RECONCILIATION.exists(settings):
        return None, None, None, ""
    total = Counter[str]()
    audit.read()
    for topic in audit.topics:
        total.update(audit.now(topic))
    parts = " + ".join(f"{total[name]} {name}" for name in OUTCOMES if total[name]) or "0"
    sign = "=" if total["messages_in"] == sum(total[name] for name in OUTCOMES) else "IS NOT"
    late = f"; {total['late']} late" if total["late"] else ""
    rows = TableFiles(settings, RECONCILIATION.path(settings)).rows
    return rows, None, None, f"{total['messages_in']} in {sign} {parts}{late}"


def _gold(settings: LakeSettings) -> list[TableStatus]:
    return [
        TableStatus(f"gold.{name}", TableFiles(settings, place).rows)
        for name, place in delta_tables(settings, "gold").items()
    ]


def _count(settings: LakeSettings, table: TableSpec) -> tuple[int | None, dt.datetime | None]:
    """Number of rows and time of the newest message, or None twice if the table does not exist.

    The number of rows comes from the table's log. For a state table it includes tombstones.
    """
    if not table.exists(settings):
        return None, None
    files = TableFiles(settings, table.path(settings))
    newest = files.newest("publish_time")
    if newest is None:  # delta-rs does not read all statistics of silver's tables
        newest = pc.max(DirectTable(table, settings).column("publish_time")).as_py()
    return files.rows, newest


def _matching(settings: LakeSettings, table: TableSpec, condition: str) -> int | None:
    return DirectTable(table, settings).count(condition) if table.exists(settings) else None
