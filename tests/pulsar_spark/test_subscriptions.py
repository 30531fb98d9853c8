"""Tests what a stream leaves on the broker, as pulsar_spark/MIGRATING.md says."""

from pathlib import Path

import httpx
from live_shop import until
from pyspark.sql import SparkSession
from topic import LiveTopic, Outgoing

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker
from pulsar_spark.source import PulsarDataSource


def test_a_stream_leaves_one_subscription_that_shows_its_last_batch_and_can_be_deleted(
    spark: SparkSession, broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    topic = LiveTopic(settings, "asked", 2)
    sent = topic.send(Outgoing(f"{n}".encode(), key=f"{n % 7}") for n in range(60))
    admin = f"{settings.pulsar_admin_url}/admin/v2/{topic.name.replace('://', '/')}"

    def backlogs() -> dict[str, int]:
        """The entries that the broker counts as unread, by partition and subscription."""
        return {
            f"{number}/{name}": found["msgBacklog"]
            for number in (0, 1)
            for name, found in httpx.get(f"{admin}-partition-{number}/stats")
            .raise_for_status()
            .json()["subscriptions"]
            .items()
        }

    spark.dataSource.register(PulsarDataSource)
    options = {
        "serviceUrl": settings.pulsar_url,
        "adminUrl": settings.pulsar_admin_url,
        "topic": topic.name,
        "subscription": "asked",
        "maxMessagesPerTrigger": "25",
    }
    rows = spark.readStream.format("pulsar").options(**options).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/c")
    running = writer.trigger(processingTime="200 milliseconds").start(f"{tmp_path}/rows")
    try:
        running.processAllAvailable()
        batches = [batch["numInputRows"] for batch in running.recentProgress]
        assert sum(batches) == len(sent)
        [last] = [count for count in batches if count][-1:]
        until(lambda: sum(backlogs().values()) == last, "a backlog of the last batch")
        topic.send([Outgoing(b"one more", key="1")])
        running.processAllAvailable()
        until(lambda: sum(backlogs().values()) == 1, "a backlog of one message, the new batch")
    finally:
        running.stop()
    assert {*backlogs()} == {"0/asked", "1/asked"}
    assert spark.read.parquet(f"{tmp_path}/rows").count() == len(sent) + 1

    gone = httpx.delete(f"{admin}/subscription/asked")
    assert gone.status_code == 204, gone.text
    assert backlogs() == {}
