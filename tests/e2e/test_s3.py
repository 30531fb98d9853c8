"""Tests a lake on a real S3 server whose driver is killed while a producer is running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from live_shop import LiveShop, assert_right, until
from messages import user
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from restored import assert_same
from s3_server import SECRET, S3Server
from shop_lake import ShopLake

from bronze import upkeep
from bronze.ingest import ingest
from gold.build import build_gold
from gold.publish import publish
from gold.sql_client import endpoint_running, query_endpoint
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import claim, newest_file
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.tables.storage import files_below, is_there, open_table, storage_options
from lakehouse.messages.publish import create_topics
from lakehouse.operate import savepoints
from lakehouse.operate.backup import back_up
from lakehouse.operate.backup_store import BackupStore, Stored
from lakehouse.operate.restore import BEGUN_IN, read_backup, restore
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import CheckpointError, LakehouseError, SettingsError
from silver.audit.snapshots import last_batch
from silver.contract.tables import CUTS
from silver.maintenance import EVERY_BATCHES, Maintenance
from silver.rebuild import BESIDE, rebuild
from silver.refine import QUERY

EIGHT_DAYS = 8 * 24 * 3600


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, bucket: LakeSettings) -> ShopLake:
    return ShopLake(spark, bucket.model_copy(update={"sql_port": free_port()}))


@contextmanager
def driver(settings: LakeSettings) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `lakehouse up` in its own process group, and kill the whole group at the end."""
    names = ("home", "lake", "s3_endpoint", "sql_port", *(f"pulsar_{x}" for x in PULSAR))
    given = {f"LAKEHOUSE_{name.upper()}": str(getattr(settings, name)) for name in names}
    settings.home_dir.mkdir(parents=True, exist_ok=True)
    with (settings.home_dir / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("lakehouse"), "up"],
            env={**os.environ, **given},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


PULSAR = ("url", "admin_url", "namespace")


def batches(lake: ShopLake) -> int:
    return last_batch(Lake(lake.settings)) if Lake(lake.settings).table(CUTS).exists() else -1


def arguments(process: "subprocess.Popen[bytes]") -> str:
    """Return the command lines of all processes in its group."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getpgid(int(folder.name)) == process.pid:
                found.append((folder / "cmdline").read_text())
    return "\n".join(found)


@pytest.mark.timeout(900)
def test_a_lake_in_a_bucket_survives_kill_9_with_each_message_once(
    lake: ShopLake, s3: S3Server, tmp_path: Path
) -> None:
    create_topics(lake.lake)
    with driver(lake.settings) as up:
        until(lambda: endpoint_running(lake.settings), "the SQL endpoint")
        with LiveShop(lake) as shop:
            until(lambda: batches(lake) >= 0 and shop.count > 20, "the first batch")
            sent = shop.stop()
        orders = "select count(*) from silver.enriched_orders"
        assert query_endpoint(lake.settings, orders)[1][0][0] > 0
        items = "select count(*) from silver.items"  # they may land after the orders
        until(lambda: query_endpoint(lake.settings, items)[1][0][0] > 0, "an item")
        assert "java" in arguments(up)
        assert SECRET not in arguments(up)
        with pytest.raises(CheckpointError, match="already runs in another process"):
            claim(lake.settings, QUERY)
        elsewhere = lake.settings.model_copy(update={"home": tmp_path / "other machine"})
        with pytest.raises(LakehouseError, match="was written from another checkpoint"):
            await_streams(ingest(lake.spark, Lake(elsewhere, lake.topics), available_now=True))
        assert_gold_is_published(lake)
        with LiveShop(lake) as shop:
            before = last_batch(Lake(lake.settings))
            until(lambda: last_batch(Lake(lake.settings)) > before, "a batch before the kill")
            os.killpg(up.pid, signal.SIGKILL)
            sent += shop.stop()
    lake.catch_up()
    assert_right(lake, sent)
    savepoints.create(lake.lake, "one")
    for query in ("bronze.orders", QUERY):  # as if it had been killed before the batch was booked
        commit = newest_file(Path(lake.settings.checkpoint_path(query)) / "commits")
        assert commit is not None
        commit.unlink()
    with LiveShop(lake) as shop:
        until(lambda: shop.count > 16, "more messages")
        more = shop.stop()
    lake.catch_up()
    assert_right(lake, sent + more)
    assert_kept_small(lake, s3)
    savepoints.restore(lake.spark, lake.lake, "one")
    assert_right(lake, sent)
    rebuild(lake.spark, lake.lake)
    assert not is_there(lake.settings, f"{lake.settings.tables}/{BESIDE}")
    lake.catch_up()
    assert_right(lake, sent + more)
    lines = {line.table: line for line in lake_status(lake.lake)}
    orders = sum(m.topic == "orders" for m in sent + more)
    assert (lines["bronze.orders"].rows, lines["bronze.orders"].lag_messages) == (orders, 0)
    assert lines["silver.missing_user"].rows == 0

    for folder in (lake.settings.home_dir, s3.folder):
        leaks = [file for file in folder.rglob("*") if file.is_file() and has_secret(file)]
        assert not leaks


def has_secret(file: Path) -> bool:
    return SECRET.encode() in file.read_bytes()


def assert_gold_is_published(lake: ShopLake) -> None:
    """Check that the server copies the tables that dbt has built to the readers' place."""
    build_gold(Lake(lake.settings), select="stg_items")
    batch = last_batch(Lake(lake.settings))
    staged = open_table(lake.settings, lake.settings.table_path("gold_build", "stg_items"))
    begun = "", {"stg_items": staged.version()}
    for marts in (["stg_items"], ["stg_items"], []):
        cut = publish(Lake(lake.settings), marts, ["stg_items"], (batch, {}), "checksum", begun)
        assert cut.versions == dict.fromkeys(marts, 1)
        if marts:
            built, seen = (
                sorted(
                    map(str, query_endpoint(lake.settings, f"select * from {schema}.stg_items")[1])
                )
                for schema in ("gold_build", "gold")
            )
            assert built == seen != []
    assert not is_there(lake.settings, lake.settings.table_path("gold", "stg_items"))


def assert_kept_small(lake: ShopLake, s3: S3Server) -> None:
    """Check that silver compacts and vacuums tables in the bucket, also with deletion vectors."""
    names = ("enriched_orders", "users_state")
    long_ago = time.time() - EIGHT_DAYS
    orphan = s3.folder / lake.settings.tables.rpartition("/")[2] / "silver" / names[0] / "x.parquet"
    checkpoint = claim(lake.settings, QUERY)
    for file in (orphan, Path(checkpoint.path) / "lakehouse.vacuumed"):
        file.touch()
        os.utime(file, (long_ago, long_ago))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(upkeep, "MANY_SMALL_FILES", 2)
        Maintenance(lake.lake, checkpoint).after(lake.spark, EVERY_BATCHES)
    checkpoint.release()
    assert [files(lake, name) for name in names] == [1, 1]
    assert not orphan.exists()


def files(lake: ShopLake, name: str) -> int:
    return len(open_table(lake.settings, lake.settings.table_path("silver", name)).file_uris())


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_lake_in_a_bucket_is_restored_in_a_bucket_and_in_a_folder(
    lake: ShopLake, tmp_path: Path
) -> None:
    create_topics(lake.lake)
    lake.send("users", [(key, user(key)) for key in range(9)])
    lake.catch_up()
    folder, project = tmp_path / "backup", tmp_path / "project"
    project.mkdir()
    made = back_up(lake.lake, folder, project)
    again = back_up(lake.lake, folder, project)
    assert (again.new_files, again.new_bytes) == (0, 0)
    lake.send("users", [(key, user(key, lastName="Later")) for key in range(9)])
    store = BackupStore(folder)

    address = {"lake": f"{lake.settings.tables}-copy", "home": tmp_path / "in a bucket"}
    copy = ShopLake(lake.spark, lake.settings.model_copy(update=address))
    name, stored = max(made.backup.files.items(), key=lambda each: "/silver/" in each[0])
    damaged = made.backup.model_copy(
        update={"files": {**made.backup.files, name: Stored(sha256="0" * 64, size=stored.size)}}
    )
    with pytest.raises(LakehouseError, match="is missing"):  # when half of it is in the bucket
        restore(copy.lake, store, damaged)
    assert not copy.settings.lake_dir.exists()
    assert files_below(copy.settings, copy.settings.tables)
    restore(copy.lake, store, read_backup(store))
    assert_same(copy.settings, lake.settings, made.backup)
    there = {*files_below(copy.settings, copy.settings.tables)}
    assert there == {
        file.removeprefix("lake/")
        for file in made.backup.files
        if file.startswith("lake/") and "_checkpoints" not in file
    }
    assert {each.name for each in copy.settings.lake_dir.iterdir()} == {
        "_checkpoints",
        BEGUN_IN,
    }
    elsewhere = copy.settings.model_copy(update={"home": tmp_path / "third"})
    with pytest.raises(SettingsError, match="is not empty, and a restore overwrites nothing"):
        restore(Lake(elsewhere, lake.topics), store, made.backup)
    in_folder = copy.settings.model_copy(update={"home": tmp_path / "f", "lake": None})
    restore(Lake(in_folder, lake.topics), store, made.backup)
    assert_same(in_folder, lake.settings, made.backup)

    copy.catch_up()
    assert {row["last_name"] for row in copy.current("users").values()} == {"Later"}


@pytest.mark.jvm
def test_commits_of_spark_and_delta_rs_do_not_replace_each_other(
    spark: SparkSession, bucket: LakeSettings
) -> None:
    place = bucket.table_path("bronze", "contested")
    append(bucket, place, 0)
    store = log_store(spark)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        commit(spark, store, place, 1, between=[lambda: append(bucket, place, 1)])
    assert open_table(bucket, place).to_pyarrow_table()["n"].to_pylist() == [1, 0]
    commit(spark, store, place, 2, between=[])
    commit(spark, store, place, 2, between=[])  # sent again, as the answer was lost
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        commit(spark, store, place, 2, between=[], operation="of another")
    append(bucket, place, 3)
    table = open_table(bucket, place)
    assert table.version() == 3
    assert [row["operation"] for row in table.history(2)] == ["WRITE", "of Spark"]


def append(settings: LakeSettings, place: str, number: int) -> None:
    rows = pa.table({"n": [number]})
    write_deltalake(place, rows, mode="append", storage_options=storage_options(settings))


def log_store(spark: SparkSession) -> Any:
    """Return the log store that Delta uses for commits to `s3` tables."""
    name = spark.sparkContext.getConf().get("spark.delta.logStore.s3.impl")
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    return getattr(jvm, str(name))(hadoop(spark))


def commit(
    spark: SparkSession,
    store: Any,
    place: str,
    version: int,
    *,
    between: list[Callable[[], None]],
    operation: str = "of Spark",
) -> None:
    """Write a version as Delta does; the `between` functions run after the write has begun."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - as above
    ensure_callback_server_started(gateway)
    path = gateway.jvm.org.apache.hadoop.fs.Path(f"{place}/_delta_log/{version:020d}.json")
    store.write(path, Actions(between, operation), False, hadoop(spark))


def hadoop(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()  # type: ignore[union-attr]  # noqa: SLF001 - as above


class Actions:
    """The lines of a commit; the `between` functions run when the lines are requested."""

    def __init__(self, between: list[Callable[[], None]], operation: str) -> None:
        self._left = [f'{{"commitInfo":{{"operation":"{operation}"}}}}']
        self._between = between

    def hasNext(self) -> bool:
        while self._between:
            self._between.pop()()
        return bool(self._left)

    def next(self) -> str:
        return self._left.pop()

    class Java:
        implements = ("java.util.Iterator",)
