"""Tests topics whose address on the broker is not their declared name, through all commands."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from topic import declared

from bronze.ingest import ingest, landed_topics, subscription
from bronze.lag import topic_lag
from bronze.replay import replay_topic
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import checkpoint_id
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.messages.publish import create_topics, publish
from lakehouse.operate import doctor, savepoints
from lakehouse.operate.reset import reset
from lakehouse.operate.status import lake_status
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.errors import CheckpointError, SettingsError
from silver.refine import refine

ODD = "transactions.debits:eu=1~%2F!$&'()*;<>@[]^_`{|}#?"  # what Pulsar allows, and URLs do not
FILE = """
[topics.debits]
kind = "events"
key = ["id"]
topic = {address}
partitions = {partitions}
fields = {{ id = "long" }}
"""


def lake_at(settings: LakeSettings, folder: Path, address: str, partitions: int = 2) -> Lake:
    text = FILE.format(address=json.dumps(address), partitions=partitions)
    return Lake(settings, declared(folder, text))


def land(spark: SparkSession, lake: Lake) -> None:
    await_streams(ingest(spark, lake, available_now=True))


def send(lake: Lake, folder: Path, ids: range) -> None:
    (folder / "debits.csv").write_text("\n".join(["id", *map(str, ids)]))
    publish(lake, folder)


def topics_in_bronze(lake: Lake) -> list[str]:
    table = DeltaTable(lake.settings.table_path("bronze", "debits")).to_pyarrow_table(
        columns=["topic"]
    )
    return table["topic"].to_pylist()  # type: ignore[no-any-return]


def test_every_command_finds_a_topic_at_its_address(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    """In a tenant and namespace that do not exist before, under a name that URLs must quote."""
    namespace = f"bank-{settings.pulsar_namespace[-8:]}/prod.eu"
    address = f"persistent://{namespace}/{ODD}"
    lake = lake_at(settings, tmp_path, address)
    create_topics(lake)
    send(lake, tmp_path, range(20))
    land(spark, lake)
    assert topics_in_bronze(lake) == [address] * 20
    await_streams(refine(spark, lake, available_now=True))
    send(lake, tmp_path, range(7))
    with PulsarAdmin(settings.connection) as admin:
        assert topic_lag(admin, lake, "debits").entries > 0
        mine = subscription(str(checkpoint_id(settings, "bronze.debits")))
        partitions = admin.partitions(address)
        assert len(partitions) == 2
        assert all(admin.subscription(each, mine) for each in partitions)
        [line] = [line for line in lake_status(lake) if line.table == "bronze.debits"]
        assert line.lag_messages

        savepoints.create(lake, "sp")
        assert all(admin.subscription(each, f"{mine}-sp") for each in partitions)
        [found] = doctor.declared_topics(lake)
        assert (found.state, found.found) == (
            "ok",
            "2 partitions; keeps messages that have not landed",
        )
        assert replay_topic(spark, lake, lake.topics.topics["debits"], 0) == 0

        elsewhere = lake_at(settings, tmp_path, "other")
        with pytest.raises(SettingsError, match=f"'debits' was {namespace and 'persistent'}.*time"):
            savepoints.restore(spark, elsewhere, "sp")
        savepoints.drop(elsewhere, "sp")
        assert not any(admin.subscription(each, f"{mine}-sp") for each in partitions)
        reset(elsewhere)
        assert not any(admin.subscription(each, mine) for each in partitions)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_landed_topic_cannot_get_another_address(
    spark: SparkSession,
    broker: Broker,
    settings: LakeSettings,
    tmp_path: Path,
    partitions: int,
) -> None:
    before = lake_at(settings, tmp_path, "one", partitions)
    after = lake_at(settings, tmp_path, "other", partitions)
    for lake in (before, after):
        create_topics(lake)
    send(before, tmp_path, range(5))
    land(spark, before)
    send(after, tmp_path, range(5))
    refused = f"declared as {after.address('debits')}, but bronze.debits holds messages of .*/one,"
    with pytest.raises(CheckpointError, match=refused):
        land(spark, after)
    with pytest.raises(CheckpointError, match=refused):
        replay_topic(spark, after, after.topics.topics["debits"], 0)
    [finding] = doctor.declared_topics(after)
    assert finding.state == "fail"
    assert "holds messages of" in finding.found
    assert landed_topics(settings, "debits") == {before.address("debits")}
    assert topics_in_bronze(before) == [before.address("debits")] * 5
    land(spark, before)
