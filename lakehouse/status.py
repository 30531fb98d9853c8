"""`lakehouse status`: what is in each topic and table, how old, and what waits. Needs no Spark."""

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from bronze.admin import PulsarAdmin
from bronze.progress import topic_lag
from bronze.settings import LakeSettings
from bronze.tables import TableSpec, bronze_table
from bronze.topics import TopicFile
from lakehouse.broker import broker_answers
from silver.tables import QUARANTINE, enriched_table, state_table


@dataclass(frozen=True)
class TableStatus:
    """One line of the status; None where a column says nothing about the table."""

    table: str
    rows: int | None
    newest: dt.datetime | None = None
    lag_messages: int | None = None
    note: str = ""

    def cells(self, now: dt.datetime) -> list[object]:
        """As it is printed."""
        age = (
            None if self.newest is None else f"{max((now - self.newest).total_seconds(), 0):.0f} s"
        )
        return [self.table, self.rows, age, self.lag_messages, self.note]


COLUMNS = ("table", "rows", "newest message", "lag (messages)", "note")


def lake_status(settings: LakeSettings, topics: TopicFile) -> list[TableStatus]:
    """The state of all tables; the lag is None while no broker answers."""
    return [
        *_bronze(settings, topics),
        *_silver(settings, topics),
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


def _silver(settings: LakeSettings, topics: TopicFile) -> list[TableStatus]:
    lines = []
    for topic in topics.changelogs():
        table = state_table(topic)
        _, newest = _count(settings, table)
        deleted = _matching(settings, table, pc.field("is_deleted"))
        live = _matching(settings, table, ~pc.field("is_deleted"))
        note = f"{deleted} deleted" if deleted else ""
        lines.append(TableStatus(f"silver.{topic.name}", live, newest, note=note))
    for topic in topics.events():
        table = enriched_table(topic, topics)
        rows, newest = _count(settings, table)
        lines.append(TableStatus(table.full_name, rows, newest))
        for lookup in topic.lookups:
            missing = _matching(settings, table, pc.field(f"{lookup}_position").is_null())
            lines.append(TableStatus(f"silver.missing_{lookup}", missing))
    quarantined, newest = _count(settings, QUARANTINE)
    lines.append(TableStatus(QUARANTINE.full_name, quarantined, newest))
    return lines


def _gold(settings: LakeSettings) -> list[TableStatus]:
    logs = sorted((settings.lake_dir / "gold").glob("*/_delta_log"))
    return [
        TableStatus(
            f"gold.{log.parent.name}", DeltaTable(log.parent).to_pyarrow_dataset().count_rows()
        )
        for log in logs
    ]


def _open(settings: LakeSettings, table: TableSpec) -> DeltaTable | None:
    try:
        return DeltaTable(table.path(settings))
    except TableNotFoundError:
        return None


def _count(settings: LakeSettings, table: TableSpec) -> tuple[int | None, dt.datetime | None]:
    """Rows and newest message, from the statistics in the table's log."""
    delta = _open(settings, table)
    if delta is None:
        return None, None
    files = pa.table(delta.get_add_actions(flatten=True))
    if files.num_rows == 0:
        return 0, None
    rows = pc.sum(files["num_records"]).as_py()
    newest = pc.max(delta.to_pyarrow_dataset().to_table(["publish_time"])["publish_time"]).as_py()
    if newest is not None and newest.tzinfo is None:
        newest = newest.replace(tzinfo=dt.timezone.utc)
    return rows, newest


def _matching(settings: LakeSettings, table: TableSpec, condition: pc.Expression) -> int | None:
    delta = _open(settings, table)
    return None if delta is None else delta.to_pyarrow_dataset().count_rows(filter=condition)
