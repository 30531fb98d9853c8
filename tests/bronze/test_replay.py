"""Tests that lost messages are restored from the broker."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from topic import LiveTopic, landed, some

from bronze.replay import replay_topic
from lake.tables.lake import Lake
from pulsar_spark.errors import SettingsError


def test_replay_restores_lost_rows_without_duplicates(
    spark: SparkSession, topic: LiveTopic, land: Callable[[], None]
) -> None:
    [declared] = topic.topics.topics.values()
    with pytest.raises(SettingsError, match="No message of orders has landed"):
        replay_topic(spark, Lake(topic.settings), declared, 0)
    sent = topic.send(some(20), batched=True)
    land()
    path = topic.settings.table_path("bronze", "orders")
    kept = landed(topic)
    sent += topic.send(some(15, seed=3))
    land()
    table = f"delta.`{path}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.appendOnly = false)")
    spark.sql(f"DELETE FROM {table} WHERE (entry + batch_index) % 2 = 0")
    assert len(landed(topic)) < len(kept)
    later = topic.send(some(5, seed=4))
    assert replay_topic(spark, Lake(topic.settings), declared, 4_000_000_000_000) == 0
    assert replay_topic(spark, Lake(topic.settings), declared, 0, end=1) == 0
    lost = len(sent) - len(landed(topic))
    assert replay_topic(spark, Lake(topic.settings), declared, 0) == lost > 0
    assert landed(topic) == sorted(sent, key=lambda row: row[:4])
    assert replay_topic(spark, Lake(topic.settings), declared, 0) == 0
    land()
    assert landed(topic) == sorted(sent + later, key=lambda row: row[:4])
