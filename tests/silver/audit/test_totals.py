"""Tests the totals of the audit, which are brought up to date row by row."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from topic import events

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from silver.audit.totals import COUNTS, AuditTotals
from silver.contract.tables import RECONCILIATION


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
