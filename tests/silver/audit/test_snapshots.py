"""Tests the snapshots that say which table versions belong together."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from topic import events

from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from silver.audit.snapshots import SilverSnapshot, last_batch, latest_snapshot
from silver.contract.tables import CUTS, silver_tables


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    found = Lake(load_settings(home=tmp_path), events("clicks"))
    for spec in silver_tables(found.topics):
        found.table(spec).create()
    return found


def offset(version: int, index: int = -1) -> dict[str, Any]:
    return {"reservoirVersion": version, "index": index}


def record(lake: Lake, batch: int, **sources: Any) -> SilverSnapshot:
    made = SilverSnapshot.now(lake, batch, sources)
    lake.table(CUTS).arrow.append([made.row()])
    return made


def test_a_snapshot_names_the_versions_that_exist_once_it_is_written(lake: Lake) -> None:
    assert (latest_snapshot(lake), last_batch(lake)) == (None, -1)
    made = record(lake, 0, clicks=offset(4))
    assert made.versions["silver.cuts"] == lake.table(CUTS).newest_version() == 1
    assert made.versions["silver.enriched_clicks"] == 0
    assert made.versions["bronze.clicks"] == 3, "the last version that was read completely"
    assert "bronze.clicks" not in record(lake, 1, clicks=offset(5, 2)).versions
    assert (latest_snapshot(lake), last_batch(lake)) == (record_of(lake), 1)


def record_of(lake: Lake) -> SilverSnapshot:
    [row] = lake.table(CUTS).arrow.rows([c.name for c in CUTS.columns], "silver_batch = 1")
    return SilverSnapshot(
        **{**row, "versions": dict(row["versions"]), "positions": dict(row["positions"])}
    )


def test_the_newest_snapshot_is_the_last_one_even_if_the_clock_was_set_back(lake: Lake) -> None:
    ahead = SilverSnapshot.now(lake, 5, {}).row()
    ahead["committed_at"] += dt.timedelta(days=1)
    lake.table(CUTS).arrow.append([ahead])
    decided = record(lake, -1)
    assert decided.committed_at > ahead["committed_at"]
    newest = latest_snapshot(lake)
    assert newest is not None
    assert newest.silver_batch == -1
    assert last_batch(lake) == 5
    of_query = latest_snapshot(lake, lambda row: row["silver_batch"] >= 0)
    assert of_query is not None
    assert of_query.silver_batch == 5
