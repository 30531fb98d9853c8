"""Tests the flow from topics to gold, as the page shows it."""

import datetime as dt

import pytest

from lakehouse.operate.status import TableStatus
from lakehouse.report.overview import Published, flow, waiting

NOW = dt.datetime(2026, 3, 4, 12, tzinfo=dt.timezone.utc)
HOUR = dt.timedelta(hours=1)
LINES = [
    TableStatus("bronze.orders", 40, NOW - HOUR, 2),
    TableStatus("bronze.users", None, None, 0),
    TableStatus("silver.users", 5, NOW - 2 * HOUR),
    TableStatus("silver.missing_user", 3),
    TableStatus("silver.reconciliation", 9, note="42 in = 40 applied + 2 quarantined"),
    TableStatus("gold.customers", 4),
]


def test_each_stage_has_its_tables_and_says_how_fresh_it_is() -> None:
    topics, bronze, silver, gold = flow(LINES, Published(NOW - HOUR, 7, 9), NOW)
    assert topics.table.rows == [("orders", 42), ("users", 0)]
    assert topics.freshness == "2 messages are not in bronze yet."
    assert bronze.table.rows == [("orders", 40), ("users", None)]
    assert bronze.freshness == "The newest message is 1 hour old."
    assert silver.freshness == "The newest message is 2 hours old."
    assert silver.table.note == "Messages: 42 in = 40 applied + 2 quarantined."
    assert gold.table.rows == [("customers", 4)]
    assert gold.freshness == "Published 1 hour ago, 2 batches behind silver."


@pytest.mark.parametrize(
    ("published", "says"),
    [
        (None, "Not published yet."),
        (Published(NOW - HOUR, 9, 9), "Published 1 hour ago, up to date with silver."),
    ],
)
def test_gold_says_whether_it_shows_all_of_silver(published: Published | None, says: str) -> None:
    assert flow(LINES, published, NOW)[3].freshness == says


def test_an_empty_lake_without_a_broker_says_so() -> None:
    topics, bronze, *_ = flow([TableStatus("bronze.orders", None)], None, NOW)
    assert topics.freshness == "No broker answered."
    assert topics.table.rows == [("orders", None)]
    assert bronze.freshness == "No messages yet."
    caught_up = [TableStatus("bronze.orders", 3, NOW, 0)]
    assert flow(caught_up, None, NOW)[0].freshness == "All messages are in bronze."


def test_incomplete_rows_are_listed_by_lookup() -> None:
    assert waiting(LINES).rows == [("user", 3)]
