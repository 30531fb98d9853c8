"""A topic with two partitions, and a way to land it."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from topic import LiveTopic

from bronze.ingest import ingest
from lake.settings.settings import LakeSettings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings, "orders", 2)


@pytest.fixture
def land(spark: SparkSession, topic: LiveTopic) -> Callable[[], None]:
    """A function that lands all messages with a new query, so each call is a restart."""

    def land_it() -> None:
        await_streams(ingest(spark, Lake(topic.settings, topic.topics), available_now=True))

    return land_it
