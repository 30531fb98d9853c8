"""The head of the page, the flow from topics to gold, and incomplete or refused records."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse.operate.status import TableStatus
from lakehouse.report.blocks import Block, Table, Tile, table
from lakehouse.report.forms import age
from lakehouse.report.snapshot import NotShownError, Snapshot
from silver.contract.tables import RECONCILIATION


@dataclass(frozen=True)
class Published:
    """The silver batch that gold was last published from, and the latest batch of silver."""

    published_at: dt.datetime
    silver_batch: int
    latest_batch: int


@dataclass(frozen=True)
class Stage:
    """One stage of the flow: how fresh it is, and its tables."""

    name: str
    freshness: str
    table: Table


def refused(lake: Snapshot) -> Tile:
    """The number of records that wait in the quarantine, for the head of the page."""
    try:
        value = lake.row("select count(*) as value from silver.quarantine where status = 'open'")[
            "value"
        ]
    except NotShownError:
        value = None
    return Tile("Records in quarantine", "number", value)


def published_state(lake: Snapshot) -> Published | None:
    """The snapshot that gold was last published from, or None if gold was never published."""
    try:
        found = lake.rows(
            """
            select published_at, silver_batch, latest_batch
            from gold.cuts
            cross join (select max(silver_batch) as latest_batch from silver.cuts) as latest
            order by published_at desc limit 1
            """
        )
    except NotShownError:
        return None
    return Published(**found[0]) if found else None


def flow(
    lines: Sequence[TableStatus], published: Published | None, now: dt.datetime
) -> list[Stage]:
    """The stages from topics to gold, with the tables that `lakehouse status` shows."""
    bronze = [line for line in lines if line.table.startswith("bronze.")]
    silver = [line for line in lines if line.table.startswith("silver.")]
    gold = [line for line in lines if line not in bronze and line not in silver]
    messages = [
        (_name(line), None if line.lag_messages is None else (line.rows or 0) + line.lag_messages)
        for line in bronze
    ]
    return [
        Stage(
            "Topics", _unread(bronze), Table("", {"topic": "text", "messages": "number"}, messages)
        ),
        Stage("Bronze", _newest(bronze, now), _counts(bronze)),
        Stage("Silver", _newest(silver, now), _counts(silver, _books(silver))),
        Stage("Gold", _published(published, now), _counts(gold)),
    ]


def waiting(lines: Sequence[TableStatus]) -> Table:
    """The number of incomplete rows per lookup."""
    prefix = "silver.missing_"
    rows = [
        (line.table.removeprefix(prefix), line.rows)
        for line in lines
        if line.table.startswith(prefix)
    ]
    note = (
        "A row is complete as soon as the row that it lacks is published; `silver.missing_…` lists "
        "these rows."
    )
    return Table("Incomplete rows", {"for": "text", "rows": "number"}, rows, note)


def quarantine(lake: Snapshot) -> Iterable[Block]:
    """The number of refused records by topic, reason and status."""
    rows = lake.rows(
        """
        select topic, reason, status, count(*) as records, max(publish_time) as newest
        from silver.quarantine
        group by topic, reason, status order by 4 desc, topic, reason, status limit 20
        """
    )
    yield table(
        "Refused records, by reason",
        {
            "topic": "text",
            "reason": "text",
            "status": "text",
            "records": "number",
            "newest": "time",
        },
        rows,
        (
            "`lakehouse quarantine show` lists samples. After a fix, `lakehouse quarantine replay` "
            "applies the records."
        ),
    )


def _name(line: TableStatus) -> str:
    return line.table.split(".", 1)[1]


def _counts(lines: Sequence[TableStatus], note: str = "") -> Table:
    rows = [(_name(line), line.rows) for line in lines]
    return Table("", {"table": "text", "rows": "number"}, rows, note)


def _books(silver: Sequence[TableStatus]) -> str:
    said = [line.note for line in silver if line.table == RECONCILIATION.full_name and line.note]
    return f"Messages: {said[0]}." if said else ""


def _unread(bronze: Sequence[TableStatus]) -> str:
    lags = [line.lag_messages for line in bronze if line.lag_messages is not None]
    if len(lags) < len(bronze):
        return "No broker answered."
    return (
        f"{sum(lags):,} messages are not in bronze yet."
        if sum(lags)
        else "All messages are in bronze."
    )


def _newest(lines: Sequence[TableStatus], now: dt.datetime) -> str:
    times = [line.newest for line in lines if line.newest is not None]
    return f"The newest message is {age(max(times), now)} old." if times else "No messages yet."


def _published(published: Published | None, now: dt.datetime) -> str:
    if published is None:
        return "Not published yet."
    behind = published.latest_batch - published.silver_batch
    state = f"{behind} batches behind silver" if behind > 0 else "up to date with silver"
    return f"Published {age(published.published_at, now)} ago, {state}."
