"""Tests that a running lake is backed up, restored elsewhere and continued: each message once."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from live_shop import DEADLINE_SECONDS, LiveShop, assert_right, until
from messages import user
from project import LAKEHOUSE
from pyspark.sql import SparkSession
from restored import assert_same, table_rows
from shop_lake import ShopLake

from bronze.ingest import ingest
from lake.settings.settings import LakeSettings
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lakehouse.messages.publish import create_topics
from lakehouse.operate.backup import ATTEMPTS, back_up, release_backup
from lakehouse.operate.backup_store import BackupStore
from lakehouse.operate.restore import read_backup, restore
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.ports import free_port
from lakehouse.sql.users import add_user, read_users
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import LakehouseError, SettingsError
from silver.audit.snapshots import last_batch
from silver.contract.tables import CUTS
from silver.refine import refine


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, settings: LakeSettings) -> ShopLake:
    return ShopLake(spark, settings)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lakehouse.toml").write_text("# nothing\n")
    return folder


def start(lake: ShopLake) -> list[Stream]:
    running = ingest(lake.spark, lake.lake)
    return running + refine(lake.spark, lake.lake)


def batches(lake: ShopLake) -> int:
    return last_batch(Lake(lake.settings)) if Lake(lake.settings).table(CUTS).exists() else -1


def subscriptions(lake: ShopLake) -> dict[str, dict[str, Any]]:
    with PulsarAdmin(lake.settings.connection) as admin:
        return {
            partition: admin.state(partition).cursors
            for topic in lake.topics.topics
            for partition in admin.partitions(lake.settings.full_topic(topic))
        }


@contextmanager
def served(lake: ShopLake, log: Path) -> Iterator[None]:
    """Run `lakehouse up` on a lake during the block, in another process, as on another machine.

    In one Spark session, the queries of a restored lake would replace those of the former one.
    """
    names = ("pulsar_url", "pulsar_admin_url", "pulsar_namespace")
    own = {name: str(getattr(lake.settings, name)) for name in names}
    own |= {"home": str(lake.settings.home_dir), "sql_port": str(free_port())}
    environment = {**os.environ, **{f"LAKEHOUSE_{name.upper()}": own[name] for name in own}}
    with log.open("w") as said:
        running = subprocess.Popen([LAKEHOUSE, "up"], env=environment, stdout=said, stderr=said)
    try:
        yield
        assert running.poll() is None, log.read_text()
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(DEADLINE_SECONDS)


def elsewhere(lake: ShopLake, home: Path) -> ShopLake:
    return ShopLake(lake.spark, lake.settings.model_copy(update={"home": home}))


@pytest.mark.nightly
@pytest.mark.timeout(600)  # it starts all streams twice
def test_a_running_lake_is_restored_beside_itself_and_both_continue(
    lake: ShopLake, project: Path, tmp_path: Path
) -> None:
    folder, copy = tmp_path / "backup", elsewhere(lake, tmp_path / "elsewhere")
    add_user(lake.settings, "ada", "a long enough password")
    with LiveShop(lake) as shop:
        running = start(lake)
        until(lambda: batches(lake) >= 1 and shop.count > 40, "the first batches")
        first = back_up(lake.lake, folder, project)
        until(lambda: batches(lake) > first.backup.silver_batch + 2, "batches after the backup")
        second = back_up(lake.lake, folder, project)
        assert second.backup.silver_batch > first.backup.silver_batch
        assert 0 < second.new_files < len(second.backup.files), "most files are known already"

        before = subscriptions(lake)
        store = BackupStore(folder)
        backup = read_backup(store)
        assert backup.silver_batch == second.backup.silver_batch
        restore(copy.lake, store, backup)
        assert_same(copy.settings, lake.settings, backup)
        assert read_users(copy.settings) == read_users(lake.settings)
        after = subscriptions(lake)
        assert all(len(after[p]) == len(before[p]) + 1 for p in after), "the copy has its own"

        with served(copy, tmp_path / "up.log"):
            until(lambda: batches(copy) > backup.silver_batch, "the copy to continue")
            begun = batches(lake)
            until(lambda: batches(lake) > begun + 2, "the lake to continue beside the copy")
            sent = shop.stop()
        for each in running:
            each.stop()
    for each in (lake, copy):
        each.catch_up()
        assert_right(each, sent)
    third = back_up(copy.lake, tmp_path / "of the copy", project)
    assert third.backup.readers != backup.readers
    with pytest.raises(SettingsError, match="holds a backup of another lake"):
        back_up(copy.lake, folder, project)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_what_a_backup_holds_keeps_and_refuses(
    lake: ShopLake, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(lake.lake)
    lake.send("users", [(key, user(key)) for key in range(9)])
    lake.catch_up()
    folder = tmp_path / "backup"
    made = back_up(lake.lake, folder, project)
    pin = f"-backup-{made.backup.id}"
    kept = {p: at for p, all_ in subscriptions(lake).items() for n, at in all_.items() if pin in n}
    assert len(kept) == len(subscriptions(lake))

    again = back_up(lake.lake, folder, project)
    assert (again.new_files, again.new_bytes) == (0, 0)
    assert (folder / "backup.json").stat().st_mode & 0o077 == 0

    # The broker keeps what comes after the backup, until the next one.
    lake.send("users", [(key, user(key, lastName="Later")) for key in range(9)])
    lake.catch_up()
    with PulsarAdmin(lake.settings.connection) as admin:
        moved = made.backup.positions(lake.lake, "users", admin)
        assert all(admin.subscription(p, _pin(made, "users")) <= at for p, at in moved)
    copy = elsewhere(lake, tmp_path / "copy")
    restore(copy.lake, BackupStore(folder), read_backup(BackupStore(folder)))
    assert_same(copy.settings, lake.settings, made.backup)
    copy.catch_up()
    assert copy.current("users") == lake.current("users")
    assert table_rows(copy.settings, "bronze.users") == table_rows(lake.settings, "bronze.users")

    newer = back_up(lake.lake, folder, project)
    with PulsarAdmin(lake.settings.connection) as admin:
        for partition, at in newer.backup.positions(lake.lake, "users", admin):
            assert (admin.subscription(partition, _pin(newer, "users")) or at) <= at

    with pytest.raises(SettingsError, match="is not empty, and a restore overwrites nothing"):
        restore(copy.lake, BackupStore(folder), newer.backup)
    release_backup(lake.lake, folder)
    assert not [n for each in subscriptions(lake).values() for n in each if pin in n]
    third = elsewhere(lake, tmp_path / "third")
    with pytest.raises(LakehouseError, match="has not kept the messages after the backup"):
        restore(third.lake, BackupStore(folder), newer.backup)
    assert not third.settings.lake_dir.exists()
    restore(third.lake, BackupStore(folder), newer.backup, new_broker=True)
    assert_same(third.settings, lake.settings, newer.backup)

    def vanished(*_: object) -> list[str]:
        raise FileNotFoundError(2, "gone", "part-1.parquet")

    stored = (folder / "backup.json").read_bytes()
    monkeypatch.setattr("lakehouse.operate.backup.files_of_version", vanished)
    with pytest.raises(LakehouseError, match=f"given up after {ATTEMPTS} attempts"):
        back_up(lake.lake, folder, project)
    assert (folder / "backup.json").read_bytes() == stored


def _pin(made: Any, topic: str) -> str:
    return f"lakehouse-{made.backup.readers[topic]}-backup-{made.backup.id}"
