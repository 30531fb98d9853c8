"""Tests that gold's own record tables stay small, and that the last publication is found fast."""

import datetime as dt
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bronze.upkeep import MANY_SMALL_FILES
from gold.records import append_record
from gold.tables import CUTS, RUNS, last_published
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import APPEND_ONLY

APPENDS = 400
EIGHT_DAYS = dt.timedelta(days=8)
NOW = dt.datetime.now(dt.timezone.utc)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake of an earlier version, whose record tables are append-only."""
    lake = Lake(load_settings(home=tmp_path))
    for table in (CUTS, RUNS):
        lake.table(table).create({APPEND_ONLY: "true"})
    return lake


def publish(lake: Lake, number: int, at: dt.datetime) -> None:
    maps = {name: [("m", number)] for name in ("versions", "built_versions", "silver_versions")}
    row = {"published_at": at, "silver_batch": number, **maps, "project": "p"}
    append_record(lake.table(CUTS), [row], "published_at", lake.settings.history_days)


def instant(number: int) -> dt.datetime:
    return NOW + dt.timedelta(seconds=number)


def test_hundreds_of_publications_fit_in_few_files_and_the_last_is_found_alone(
    spark: SparkSession, lake: Lake
) -> None:
    for number in range(APPENDS):
        publish(lake, number, instant(number))
    table = DeltaTable(lake.table(CUTS).path)
    assert len(table.file_uris()) <= MANY_SMALL_FILES
    assert lake.table(CUTS).rows(spark).count() == APPENDS

    sizes = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    last = max(sizes, key=lambda file: file["max.published_at"])["path"]
    for file in Path(lake.table(CUTS).path).glob("*.parquet"):
        if file.name != last:
            file.unlink()
    found = last_published(lake)
    assert found is not None
    assert (found.published_at, found.silver_batch) == (instant(APPENDS - 1), APPENDS - 1)
    assert found.versions == {"m": APPENDS - 1}


def test_rows_and_logs_of_old_builds_are_deleted_and_the_latest_stay(lake: Lake) -> None:
    for number in range(150):
        publish(lake, number, instant(number) - EIGHT_DAYS)
    newest = last_published(lake)
    assert lake.table(CUTS).arrow.count_rows() <= MANY_SMALL_FILES
    assert newest is not None
    assert newest.silver_batch == 149

    log = Path(lake.table(CUTS).path) / "_delta_log"
    then = (time.time() - EIGHT_DAYS.total_seconds(),) * 2
    for file in log.iterdir():
        os.utime(file, then)
    for number in range(150, 400):
        publish(lake, number, instant(number))
    assert lake.table(CUTS).arrow.count_rows() == 250
    recent = [file for file in log.glob("*.json") if file.stat().st_mtime > then[0] + 1]
    assert len(recent) < 1.5 * 250, "an append is one commit, and maintenance is rare"
    left = len(list(log.glob("*.json"))) - len(recent)
    assert left <= 100, "older commits are kept only back to a recent checkpoint"


def test_files_of_old_versions_and_of_killed_writers_are_deleted(lake: Lake) -> None:
    nothing_is_kept = Lake(lake.settings.model_copy(update={"history_days": 0}))
    table = DeltaTable(lake.table(CUTS).path)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    orphan = Path(lake.table(CUTS).path) / "part-of-a-writer-that-was-killed.parquet"
    orphan.touch()
    for number in range(100):
        publish(nothing_is_kept, number, instant(number))
    assert not orphan.exists()
    files = list(Path(lake.table(CUTS).path).glob("*.parquet"))
    assert len(files) <= 2 * MANY_SMALL_FILES


def test_runs_of_many_nodes_are_kept_for_history_days(lake: Lake) -> None:
    def run(at: dt.datetime) -> None:
        node = {"kind": "model", "status": "success", "seconds": 1.0, "message": None}
        rows = [{"started_at": at, "outcome": "published", "name": f"m{n}", **node} for n in "ab"]
        append_record(lake.table(RUNS), rows, "started_at", lake.settings.history_days)

    for number in range(40):
        run(instant(number) - EIGHT_DAYS)
    for number in range(40):
        run(instant(number))
    kept = lake.table(RUNS).arrow.rows(["started_at"])
    recent = [row for row in kept if row["started_at"] >= NOW]
    assert len(recent) == 2 * 40
    assert len(kept) - len(recent) <= 2 * MANY_SMALL_FILES
