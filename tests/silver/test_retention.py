"""Tests that silver's batch records do not grow without limit and still give the same results."""

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lake.settings.settings import load_settings
from lake.tables.arrow import ArrowTable
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY
from lake.tables.table import Table
from silver.audit.reconcile import Watermarks
from silver.audit.snapshots import last_batch, latest_snapshot
from silver.audit.totals import AuditTotals
from silver.contract.tables import CUTS, RECONCILIATION
from silver.retention import drop_old_batches

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.timezone.utc)
TOPICS = ("orders", "users")
BATCHES = 3000  # one every five minutes, about ten days
STEP = dt.timedelta(minutes=5)
COUNTS = ("messages_in", "applied", "superseded", "quarantined", "discarded", "waiting", "late")


def committed_at(number: int) -> dt.datetime:
    return NOW - STEP * (BATCHES - number)


def row(number: int, topic: str) -> dict[str, Any]:
    counts = {name: (number * place) % 11 for place, name in enumerate(COUNTS, 1)}
    watermark = committed_at(number) if topic == "orders" and number % 3 else None
    lateness = number % 1000 if number % 2 else None
    key = {"silver_batch": number, "topic": topic}
    return {**key, **counts, "watermark": watermark, "max_lateness_ms": lateness}


ROWS = [row(number, topic) for number in range(BATCHES) for topic in TOPICS]
DECISIONS = [{**row(7, "orders"), "silver_batch": -1, "watermark": None}]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake with the append-only record tables of an earlier version, in many files."""
    lake = Lake(load_settings(home=tmp_path))
    for table in (CUTS, RECONCILIATION):
        lake.table(table).create({APPEND_ONLY: "true"})
    cuts = [
        {
            "silver_batch": number,
            "committed_at": committed_at(number),
            "versions": [("silver.cuts", number + 1)],
            "positions": [("orders", str(number))],
        }
        for number in range(BATCHES)
    ]
    for begin in range(0, BATCHES, 100):
        append(lake.table(CUTS), cuts[begin : begin + 100])
        append(lake.table(RECONCILIATION), ROWS[2 * begin : 2 * (begin + 100)])
    append(lake.table(RECONCILIATION), DECISIONS)
    return lake


def append(table: Table, rows: list[dict[str, Any]]) -> None:
    log = table.log()
    write_deltalake(
        log, pa.Table.from_pylist(rows, pa.schema(log.schema().to_arrow())), mode="append"
    )


def told(lake: Lake) -> tuple[object, ...]:
    """All values read from the audit and the snapshots, except for old times."""
    audit = AuditTotals(lake)
    audit.read()
    totals = {topic: (audit.of_batches(topic), audit.now(topic)) for topic in TOPICS}
    return (
        totals,
        Watermarks.read(lake, BATCHES),
        latest_snapshot(lake),
        last_batch(lake),
    )


def test_old_batches_become_one_row_and_the_totals_stay(spark: SparkSession, lake: Lake) -> None:
    before = told(lake)
    first_kept = next(n for n in range(BATCHES) if committed_at(n) >= NOW - dt.timedelta(days=7))
    for _ in range(2):  # the repetition, as after a crash, changes nothing
        drop_old_batches(lake, NOW)
        assert told(lake) == before
        cuts = lake.table(CUTS).arrow.column("silver_batch").to_pylist()
        assert sorted(cuts) == [*range(first_kept, BATCHES)]
        audit = lake.table(RECONCILIATION).arrow.rows(["silver_batch", "topic", *COUNTS])
        numbers = Counter(each["silver_batch"] for each in audit)
        assert numbers.pop(-1) == 1
        assert numbers == dict.fromkeys(range(first_kept - 1, BATCHES), len(TOPICS))
        for topic in TOPICS:
            [folded] = [
                each
                for each in audit
                if (each["silver_batch"], each["topic"]) == (first_kept - 1, topic)
            ]
            old = [each for each in ROWS[: 2 * first_kept] if each["topic"] == topic]
            assert {n: folded[n] for n in COUNTS} == {n: sum(r[n] for r in old) for n in COUNTS}
    for table in (CUTS, RECONCILIATION):
        assert lake.table(table).rows(spark).count() == lake.table(table).arrow.count_rows()


def test_a_kill_between_the_audit_and_the_snapshots_is_repaired_the_next_day(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(lake)
    delete = ArrowTable.delete

    def kill(self: ArrowTable, condition: str, *rest: Any) -> None:
        if "committed_at" in condition:
            raise KeyboardInterrupt
        delete(self, condition, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(ArrowTable, "delete", kill)
        with pytest.raises(KeyboardInterrupt):
            drop_old_batches(lake, NOW)
    assert told(lake) == before
    drop_old_batches(lake, NOW + dt.timedelta(days=1))
    assert told(lake) == before


def test_the_latest_snapshot_stays_however_old(lake: Lake) -> None:
    before = told(lake)
    drop_old_batches(lake, NOW + dt.timedelta(days=365))
    assert told(lake) == before
    assert lake.table(CUTS).arrow.count_rows() == 1
