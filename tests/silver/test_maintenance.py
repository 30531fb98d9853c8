"""Tests that silver keeps its tables small without changing their rows."""

import os
import shutil
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from messages import item, message, order, user
from model import LakeModel
from pyspark.sql import SparkSession
from silver_lake import PUBLISHED, SilverLake

from bronze import upkeep
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from pulsar_spark.errors import SettingsError
from silver import maintenance
from silver.contract.tables import CUTS, silver_tables
from silver.refine import refine

EIGHT_DAYS = 8 * 24 * 3600
CUT = {"committed_at": PUBLISHED, "versions": [("bronze.orders", 1)], "positions": [("orders", "")]}


def files(lake: SilverLake, table: str) -> set[Path]:
    folder = Path(lake.settings.table_path("silver", table))
    return set(folder.glob("*.parquet"))


def live(lake: SilverLake, table: str) -> int:
    return len(DeltaTable(lake.settings.table_path("silver", table)).file_uris())


def test_small_files_are_compacted_and_old_ones_deleted_while_batches_continue(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "EVERY_BATCHES", 1)
    monkeypatch.setattr(upkeep, "MANY_SMALL_FILES", 3)
    lake, model = SilverLake(spark, tmp_path), LakeModel()
    [running] = refine(spark, lake.lake)
    for turn in range(4):
        batch = [
            message("users", turn, turn % 2, user(turn % 2, lastName=f"v{turn}")),
            message("items", turn, 0, item(0, price=turn)),
            message("orders", turn, turn, order(turn, 0, turn % 3, 0)),
        ]
        lake.put(batch)
        running.query.processAllAvailable()
        model.batch(batch)
        assert live(lake, "enriched_orders") <= 3
        assert live(lake, "users_state") <= 3
    assert len(files(lake, "enriched_orders")) > 3, "files of old versions are kept for a while"
    old, left = time.time() - EIGHT_DAYS, set[Path]()
    for table in ("enriched_orders", "users_state"):
        file = next(iter(files(lake, table)))
        left.add(Path(shutil.copy(file, file.with_name("of-a-write-that-died.parquet"))))
    for file in left:
        os.utime(file, (old, old))
    due = Path(running.checkpoint.path) / "lakehouse.vacuumed"
    os.utime(due, (old, old))
    batch = [message("orders", 100, 100, order(100, 0, 0, 0))]
    lake.put(batch)
    running.query.processAllAvailable()
    running.stop()
    model.batch(batch)
    assert time.time() - due.stat().st_mtime < EIGHT_DAYS
    assert not [file for file in left if file.exists()]
    assert lake.current("users") == model.current("users")
    assert lake.enriched() == model.enriched


@pytest.mark.nightly
def test_once_a_day_rows_are_sorted_by_key_where_many_files_span_the_same_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MANY_OVERLAPPING_FILES", 3)
    lake, model = SilverLake(spark, tmp_path), LakeModel()
    [spec] = [spec for spec in silver_tables(lake.topics) if spec.name == "users_state"]
    state = lake.lake.table(spec)
    [running] = refine(spark, lake.lake)

    def refine_users(turn: int, *keys: int) -> float:
        batch = [message("users", turn * 10 + n, key, user(key)) for n, key in enumerate(keys)]
        lake.put(batch)
        running.query.processAllAvailable()
        model.batch(batch)
        return state.arrow.overlap("id")

    assert refine_users(1, 0, 9) == 1
    assert refine_users(2, 1, 8) == 2
    due = Path(running.checkpoint.path) / "lakehouse.vacuumed"
    os.utime(due, (0, 0))
    assert refine_users(3, 20, 30) < 2, "too few files are not worth sorting"
    os.utime(due, (0, 0))
    assert refine_users(4, 2, 25) == 1
    running.stop()
    assert lake.current("users") == model.current("users")
    history = state.log().history()
    assert any("zOrderBy" in str(each.get("operationParameters")) for each in history)


def test_commits_delete_the_logs_of_versions_that_are_no_longer_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    cuts = Lake(load_settings(home=tmp_path)).table(CUTS)
    cuts.create()
    table, log = cuts.arrow, Path(cuts.path) / "_delta_log"
    for number in range(150):
        table.append_once([CUT | {"silver_batch": number}], "test", number)
    old = time.time() - EIGHT_DAYS
    for file in log.iterdir():
        os.utime(file, (old, old))
    for number in range(150, 250):
        table.append_once([CUT | {"silver_batch": number}], "test", number)
    assert 100 <= len(list(log.glob("*.json"))) <= 202
    assert cuts.rows(spark).count() == 250, "Spark can read the table, too"


def test_a_retention_that_readers_could_not_survive_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'history_days'.*7"):
        load_settings(history_days=6)
