"""The groups of quarantined records, and the records of a group, with SQL that needs no Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from lake.tables.keys import literal_of
from lake.tables.lake import Lake
from lakehouse.console.masking import Masking
from pulsar_spark.schema import POSITION_FIELDS
from silver.contract.tables import QUARANTINE

PAGE = 50  # groups, or records, on a page


@dataclass(frozen=True)
class Filter:
    """Which groups a page shows. `text` is a part of the reason."""

    topic: str = ""
    text: str = ""
    status: str = ""
    page: int = 1


@dataclass(frozen=True)
class Group:
    """The records of a topic that were refused for the same reason. Times are publish times."""

    topic: str
    reason: str
    status: str
    records: int
    first: dt.datetime
    last: dt.datetime


@dataclass(frozen=True)
class Record:
    """A refused message; personal values are masked."""

    position: str
    key: str
    payload: str
    size: int
    published: dt.datetime
    status: str


def groups(lake: Lake, wanted: Filter) -> tuple[list[Group], int, int]:
    """The groups on a page, the largest first; how many groups there are, and their records."""
    if not lake.table(QUARANTINE).exists():
        return [], 0, 0
    conditions = [
        f"{column} = {literal_of(value)}"
        for column, value in (("topic", wanted.topic), ("status", wanted.status))
        if value
    ]
    if wanted.text:
        conditions.append(f"strpos(lower(reason), {literal_of(wanted.text.lower())}) > 0")
    where = f"where {' and '.join(conditions)}" if conditions else ""
    grouped = (
        "select topic, reason, status, count(*) as records, min(publish_time) as first, "  # noqa: S608 - our own SQL
        f"max(publish_time) as last from quarantine {where} group by topic, reason, status"
    )
    start = (wanted.page - 1) * PAGE
    sql = (
        f"with found as ({grouped}) select *, count(*) over () as groups_found, "  # noqa: S608 - our own SQL
        "sum(records) over () as records_found from found "
        f"order by records desc, topic, reason, status limit {PAGE} offset {start}"
    )
    rows = _rows(lake, sql)
    if not rows:
        return [], 0, 0
    counts = int(rows[0]["groups_found"]), int(rows[0]["records_found"])
    names = ("topic", "reason", "status", "records", "first", "last")
    return [Group(**{name: row[name] for name in names}) for row in rows], *counts


def records(
    lake: Lake, masking: Masking, topic: str, reason: str, page: int = 1
) -> tuple[list[Record], int, int]:
    """The newest records of a group on a page; how many it has, and how many of them are open."""
    if not lake.table(QUARANTINE).exists():
        return [], 0, 0
    where = f"topic = {literal_of(topic)} and reason = {literal_of(reason)}"
    [counts] = _rows(
        lake,
        "select count(*) as all_records, count(*) filter (where status = 'open') as open_records "  # noqa: S608 - our own SQL
        f"from quarantine where {where}",
    )
    rows = _rows(
        lake,
        "select position, key, payload, publish_time, status from quarantine "  # noqa: S608 - our own SQL
        f"where {where} order by publish_time desc, position desc "
        f"limit {PAGE} offset {(page - 1) * PAGE}",
    )
    found = [
        Record(
            ":".join(str(row["position"][name]) for name in POSITION_FIELDS),
            masking.key(topic, row["key"]),
            masking.payload(topic, row["payload"]),
            len(row["payload"] or b""),
            row["publish_time"],
            row["status"],
        )
        for row in rows
    ]
    return found, int(counts["all_records"]), int(counts["open_records"])


def _rows(lake: Lake, sql: str) -> Sequence[dict[str, Any]]:
    query = QueryBuilder().register("quarantine", lake.table(QUARANTINE).log())
    found: list[dict[str, Any]] = pa.table(query.execute(sql).read_all()).to_pylist()
    return found
