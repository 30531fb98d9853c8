"""`lakehouse status`: rows, age and lag of tables, sinks, and what is pending. Needs no Spark."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass

import pyarrow.compute as pc

from bronze.lag import topic_lag
from gold.tables import published_tables
from lake.streams.given_up import given_up
from lake.streams.last_errors import last_errors
from lake.streams.pause import paused_since
from lake.streams.state import finished_at
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import Table
from lakehouse.imports.state import import_states
from lakehouse.runtime.broker import broker_answers
from lakehouse.sinks.state import sink_states
from pulsar_spark.broker.admin import PulsarAdmin
from silver.audit.totals import OUTCOMES, AuditTotals, count_missing, count_without_partner
from silver.contract.tables import (
    QUARANTINE,
    RECONCILIATION,
    enriched_table,
    state_table,
    view_table,
)


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


NO_BROKER = "no broker answers"
LATELY = 600  # seconds of work after which an error is no longer noted
LONGEST = 160  # characters of an error
COLUMNS = ("table", "rows", "newest message", "lag (messages)", "note")


def lake_status(lake: Lake, audit: AuditTotals | None = None) -> list[TableStatus]:
    """The status of all tables. The lag is None while no broker answers.

    A caller that refreshes the status passes the same `audit` each time, so that only new audit
    rows are read.
    """
    return [
        *(TableStatus(each.name, each.rows, note=each.note) for each in import_states(lake)),
        *_bronze(lake),
        *_silver(lake, audit or AuditTotals(lake)),
        *_gold(lake),
        *(TableStatus(each.name, None, note=each.note) for each in sink_states(lake)),
    ]


def _bronze(lake: Lake) -> list[TableStatus]:
    lines = []
    answers = broker_answers(lake.settings)
    with PulsarAdmin(lake.settings.connection) as admin:
        for topic in lake.topics.topics.values():
            rows, newest = _count(lake.table(bronze_table(topic.name)))
            lag = None
            if answers:
                lag = topic_lag(admin, lake, topic.name).messages(rows or 0)
            since = topic.kept_since(dt.datetime.now(dt.timezone.utc))
            kept = f"kept since {since:%Y-%m-%d}" if since else ""
            state = _state(lake, f"bronze.{topic.name}")
            note = _notes(state, "" if answers else NO_BROKER, kept)
            lines.append(TableStatus(f"bronze.{topic.name}", rows, newest, lag, note))
    return lines


def _silver(lake: Lake, audit: AuditTotals) -> list[TableStatus]:
    lines = []
    for topic in lake.topics.changelogs():
        table = lake.table(state_table(topic))
        _, newest = _count(table)
        deleted = _matching(
            table, "is_deleted AND mark IS NULL" if topic.has_marks else "is_deleted"
        )
        live = _matching(table, "NOT is_deleted")
        note = f"{deleted} deleted" if deleted else ""
        lines.append(TableStatus(f"silver.{topic.name}", live, newest, note=note))
    for topic in lake.topics.events():
        table = lake.table(enriched_table(topic, lake.topics))
        rows, newest = _count(table)
        lines.append(TableStatus(table.full_name, rows, newest))
        for name, (of, lookup) in lake.topics.missing_views().items():
            if of == topic:
                missing = count_missing(table, lookup) if rows is not None else None
                lines.append(TableStatus(f"silver.{name}", missing))
    for join in lake.topics.joined.values():
        table = lake.table(view_table(join.view, lake.topics))
        lines.append(TableStatus(table.full_name, _matching(table, "true")))
        missing = count_without_partner(table, join) if table.exists() else None
        lines.append(TableStatus(f"silver.{join.join.missing}", missing))
    quarantined, newest = _count(lake.table(QUARANTINE))
    lines.append(TableStatus(QUARANTINE.full_name, quarantined, newest))
    lines.append(TableStatus(RECONCILIATION.full_name, *_audit(lake, audit)))
    return lines


def _audit(lake: Lake, audit: AuditTotals) -> tuple[int | None, None, None, str]:
    """Number of audit rows, and a note with their totals over all batches."""
    if not lake.table(RECONCILIATION).exists():
        return None, None, None, ""
    total = Counter[str]()
    audit.read()
    for topic in audit.topics:
        total.update(audit.now(topic))
    parts = " + ".join(f"{total[name]} {name}" for name in OUTCOMES if total[name]) or "0"
    state = _state(lake, "silver")
    sign = "=" if total["messages_in"] == sum(total[name] for name in OUTCOMES) else "IS NOT"
    late = f"; {total['late']} late" if total["late"] else ""
    rows = lake.table(RECONCILIATION).files().rows
    return rows, None, None, _notes(state, f"{total['messages_in']} in {sign} {parts}{late}")


def _state(lake: Lake, query: str) -> str:
    """What is wrong with a stream, or was lately; empty if nothing is."""
    since = paused_since(lake.settings, query)
    paused = f"paused since {since:%Y-%m-%d %H:%M:%S} UTC" if since else ""
    stopped = given_up(lake.settings, query)
    if stopped is not None:
        failed = f"given up at {stopped.at:%Y-%m-%d %H:%M:%S} UTC: {_short(stopped.reason)}"
        return _notes(paused, failed)
    error = next(iter(last_errors(lake.settings, query)), None)
    if error is None:
        return paused
    at = dt.datetime.fromisoformat(error.at)
    finished = finished_at(lake.settings, query)
    if finished is not None and finished >= at.timestamp() + LATELY:
        return paused  # it has worked for long enough since
    then = f", restart {error.retry}" if error.retry else ""
    return _notes(paused, f"failed at {at:%Y-%m-%d %H:%M:%S} UTC{then}: {_short(error.reason)}")


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 1]}…"


def _notes(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _gold(lake: Lake) -> list[TableStatus]:
    return [TableStatus(each.full_name, each.files().rows) for each in published_tables(lake)]


def _count(table: Table) -> tuple[int | None, dt.datetime | None]:
    """Number of rows and time of the newest message, or None twice if the table does not exist.

    The number of rows comes from the table's log. For a state table it includes tombstones.
    """
    if not table.exists():
        return None, None
    files = table.files()
    newest = files.newest("publish_time")
    if newest is None:  # delta-rs does not read all statistics of silver's tables
        newest = pc.max(table.arrow.column("publish_time")).as_py()
    return files.rows, newest


def _matching(table: Table, condition: str) -> int | None:
    return table.arrow.count(condition) if table.exists() else None
