"""Tests restore and replay of a lake with a live producer: each message is there once.

The lake is restored to a savepoint and catches up again, and silver is rebuilt.
"""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from live_shop import LiveShop, assert_right, until
from messages import item, order, user
from pyspark.sql import SparkSession
from restored import table_rows
from shop_lake import ShopLake
from topic import declared, events

from bronze.expiry import expire_messages
from bronze.ingest import ingest
from lake.settings.settings import SHOP_TOPICS, LakeSettings
from lake.streams.job import await_streams
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.messages.publish import create_topics
from lakehouse.operate import savepoints
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from pulsar_spark.offsets import START
from silver.audit.snapshots import last_batch
from silver.contract.tables import CUTS
from silver.rebuild import rebuild
from silver.refine import refine


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, settings: LakeSettings) -> ShopLake:
    return ShopLake(spark, settings)


def start(lake: ShopLake) -> list[Stream]:
    running = ingest(lake.spark, lake.lake)
    return running + refine(lake.spark, lake.lake)


def stop(running: list[Stream]) -> None:
    for each in running:
        each.stop()


def batches(lake: ShopLake) -> int:
    return last_batch(Lake(lake.settings)) if Lake(lake.settings).table(CUTS).exists() else -1


def contents(lake: ShopLake) -> dict[str, list[str]]:
    """Return all rows of bronze and silver as text."""
    paths = [
        p for layer in ("bronze", "silver") for p in (lake.settings.lake_dir / layer).iterdir()
    ]
    return {
        table: table_rows(lake.settings, table)
        for table in (f"{p.parent.name}.{p.name}" for p in paths)
    }


def test_a_savepoint_ignores_partitions_that_silver_has_not_read(lake: ShopLake) -> None:
    create_topics(lake.lake)
    lake.send("users", [(1, user(1))])
    lake.catch_up()
    lake.send("users", [(key, user(key)) for key in range(2, 20)])
    await_streams(ingest(lake.spark, lake.lake, available_now=True))
    landed = {row["partition"] for row in lake.rows("users", layer="bronze")}
    assert len(landed) == lake.topics.topics["users"].partitions > 1
    early = savepoints.create(lake.lake, "early")
    with PulsarAdmin(lake.settings.connection) as admin:
        users = [position for _, position in early.positions(Lake(lake.settings), "users", admin)]
    assert len(users) == len(landed)
    assert users.count(START) == len(landed) - 1

    more = TopicFile(topics={**lake.topics.topics, **events("clicks").topics})
    fewer = TopicFile(topics={n: t for n, t in lake.topics.topics.items() if n != "orders"})
    for others, said in ((more, "'clicks' was added"), (fewer, "'orders' was removed")):
        with pytest.raises(SettingsError, match=said):
            savepoints.restore(lake.spark, Lake(lake.settings, others), "early")
    savepoints.drop(Lake(lake.settings, more), "early")
    assert savepoints.savepoints(lake.settings) == []
    with PulsarAdmin(lake.settings.connection) as admin:
        for name in ("users", "orders"):
            for partition in admin.partitions(lake.settings.full_topic(name)):
                assert not [s for s in admin.state(partition).cursors if "early" in s]


@pytest.mark.nightly
def test_a_restore_brings_back_messages_that_have_been_deleted_by_age(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    kept = SHOP_TOPICS.read_text().replace('kind = "events"', 'kind = "events"\nkeep = "30 days"')
    lake = ShopLake(spark, settings, declared(tmp_path, kept))
    create_topics(lake.lake)
    lake.send("users", [(1, user(1))])
    lake.send("items", [(7, item(7))])
    lake.send("orders", [(n, order(n, 1, 1, 7)) for n in range(9)])
    lake.catch_up()
    lake.send("users", [(1, user(1, lastName="Later"))])
    lake.catch_up()  # so that silver's stream is past the orders
    before = {
        table: table_rows(lake.settings, table)
        for table in ("bronze.orders", "silver.enriched_orders")
    }
    assert [len(found) for found in before.values()] == [9, 9]
    savepoints.create(lake.lake, "before")

    def delete_old() -> int:
        in_forty_days = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=40)
        return expire_messages(lake.lake, lake.topics.topics["orders"], in_forty_days)

    assert delete_old() == 9
    assert table_rows(lake.settings, "bronze.orders") == []
    savepoints.restore(lake.spark, lake.lake, "before")
    lake.catch_up()
    assert {table: table_rows(lake.settings, table) for table in before} == before
    savepoints.drop(lake.lake, "before")
    assert delete_old() == 9
    assert table_rows(lake.settings, "bronze.orders") == []


@pytest.mark.nightly
@pytest.mark.timeout(600)  # it starts all streams three times
def test_a_restored_lake_has_its_old_rows_continues_and_can_be_replayed(lake: ShopLake) -> None:
    with LiveShop(lake) as shop:
        running = start(lake)
        until(lambda: batches(lake) >= 1 and shop.count > 40, "the first batches")
        until(lambda: bool(table_rows(lake.settings, "silver.enriched_orders")), "enriched orders")
        begun = batches(lake)
        until(lambda: batches(lake) > begun, "the end of the batch with these orders")
        first = savepoints.create(lake.lake, "first")
        until(lambda: batches(lake) >= first.silver_batch + 1, "a batch after the savepoint")
        with pytest.raises(CheckpointError, match="already runs in another process"):
            savepoints.restore(lake.spark, lake.lake, "first")
        stop(running)
        as_of = {
            table: table_rows(lake.settings, table, version)
            for table, version in first.versions.items()
        }
        later = Path(lake.settings.table_path("gold", "later"))
        write_deltalake(later, pa.table({"points": [1]}))
        savepoints.restore(lake.spark, lake.lake, "first")
        assert contents(lake) == as_of
        assert not later.exists(), "gold built after the savepoint is deleted"
        assert lake.audited().total() == sum(
            len(rows) for name, rows in as_of.items() if name[:6] == "bronze"
        )

        again = savepoints.create(lake.lake, "again")
        assert again.silver_batch == first.silver_batch
        running = start(lake)
        until(lambda: batches(lake) >= first.silver_batch + 1, "a batch after the restore")
        stop(running)
        savepoints.restore(lake.spark, lake.lake, "again")
        assert contents(lake) == as_of

        landing = ingest(lake.spark, lake.lake)
        count = len(lake.rows("orders", layer="bronze"))
        until(lambda: len(lake.rows("orders", layer="bronze")) > count, "bronze to continue")
        rebuild(lake.spark, lake.lake)
        sent = shop.stop()
        stop(landing)
    lake.catch_up()
    assert_right(lake, sent)

    assert [each.name for each in savepoints.savepoints(lake.settings)] == ["first", "again"]
    savepoints.drop(lake.lake, "first")
    with pytest.raises(SettingsError, match="no savepoint 'first'. The existing ones are: again"):
        savepoints.restore(lake.spark, lake.lake, "first")
    with pytest.raises(SettingsError, match="savepoint 'again' already exists"):
        savepoints.create(lake.lake, "again")
    with pytest.raises(SettingsError, match="'../x' is not a valid savepoint name"):
        savepoints.create(lake.lake, "../x")
    versions = {
        table: DeltaTable(lake.settings.table_path(*table.split("."))).version() for table in as_of
    }
    orders = DeltaTable(
        lake.settings.table_path("bronze", "orders"), version=again.versions["bronze.orders"]
    )
    Path(orders.file_uris()[0]).unlink()
    with pytest.raises(LakehouseError, match="bronze.orders cannot go back.*Nothing was changed"):
        savepoints.restore(lake.spark, lake.lake, "again")
    assert all(
        DeltaTable(lake.settings.table_path(*table.split("."))).version() == version
        for table, version in versions.items()
    )
