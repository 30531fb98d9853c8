"""Tests the totals of the audit, which are brought up to date row by row."""

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from topic import events

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from silver.audit.totals import COUNTS, AuditTotals, highest_rate
from silver.contract.tables import CUTS, RECONCILIATION


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    found = Lake(load_settings(home=tmp_path), events("clicks"))
    found.table(RECONCILIATION).create()
    return found


def add(lake: Lake, batch: int, topic: str, **counts: int) -> None:
    row = {"silver_batch": batch, "topic": topic, **dict.fromkeys(COUNTS, 0), **counts}
    lake.table(RECONCILIATION).arrow.append([row])


def test_batches_and_later_decisions_are_told_apart(lake: Lake) -> None:
    audit = AuditTotals(lake)
    add(lake, 0, "clicks", messages_in=5, applied=3, quarantined=2)
    audit.read()
    assert audit.now("clicks")["quarantined"] == 2
    add(lake, 1, "clicks", messages_in=4, applied=4)
    add(lake, 1, "other", messages_in=1, superseded=1)
    add(lake, -1, "clicks", applied=1, quarantined=-2, discarded=1)
    for _ in range(2):
        audit.read()
        assert audit.topics == {"clicks", "other"}
        of_batches, now = audit.of_batches("clicks"), audit.now("clicks")
        assert (of_batches["messages_in"], of_batches["quarantined"]) == (9, 2)
        assert (now["messages_in"], now["applied"], now["quarantined"]) == (9, 8, 0)
        assert now["discarded"] == 1
    assert audit.now("unknown")["messages_in"] == 0


def test_the_highest_rate_is_that_of_one_batch_whose_beginning_is_known(lake: Lake) -> None:
    assert highest_rate(lake) is None
    lake.table(CUTS).create()
    assert highest_rate(lake) is None
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    empty: dict[str, object] = {"versions": {}, "positions": {}}
    # Batch 0 has no batch before it, and neither has batch 5, because 4 was too long ago. Batch -1
    # is a decision about the quarantine.
    for batch, second in ((0, 0), (1, 10), (2, 12), (5, 12.5), (-1, 12.6), (6, 20)):
        moment = begin + dt.timedelta(seconds=second)
        row = {"silver_batch": batch, "committed_at": moment, **empty}
        lake.table(CUTS).arrow.append([row])
    assert highest_rate(lake) is None
    for batch, count in ((0, 9000), (1, 50), (2, 20), (5, 9000), (-1, 9000), (6, 30)):
        add(lake, batch, "clicks", messages_in=count)
    add(lake, 2, "other", messages_in=4)
    assert highest_rate(lake) == (20 + 4) / 2
