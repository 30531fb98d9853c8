"""What a broker does to a running stream."""

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tenacity import Retrying, stop_after_delay, wait_fixed
from topic import LiveTopic, Outgoing

from bronze.admin import PulsarAdmin
from bronze.checkpoint import Running
from bronze.ingest import ingest
from bronze.settings import LakeSettings
from lakehouse.broker import Broker

DEADLINE_SECONDS = 120

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings.model_copy(update={"trigger": "0 seconds"}), "o", 2)


@pytest.fixture
def stream(spark: SparkSession, topic: LiveTopic) -> Iterator[Running]:
    [running] = ingest(spark, topic.settings, topic.topics)
    yield running
    running.stop()


def landed(topic: LiveTopic, stream: Running, count: int) -> list[bytes]:
    """The payloads, once there are as many as expected, or none comes any more."""

    def look() -> list[bytes]:
        table = DeltaTable(topic.settings.table_path("bronze", "o")).to_pyarrow_table()
        assert table.num_rows >= count or not stream.query.isActive
        return sorted(table["payload"].to_pylist())

    patient = Retrying(stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.5), reraise=True)
    return patient(look)


def numbered(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(f"{n:04d}".encode(), key=str(n)) for n in range(first, end)]


def test_a_stream_goes_on_when_the_broker_gives_up_its_topic(
    topic: LiveTopic, stream: Running
) -> None:
    """As when another broker takes it over: connections are cut."""
    topic.send(numbered(0, 50))
    landed(topic, stream, 50)
    with PulsarAdmin(topic.settings.connection) as admin:
        for number in (0, 1):
            admin.unload(f"{topic.name}-partition-{number}")
    topic.send(numbered(50, 90))
    assert landed(topic, stream, 90) == [f"{n:04d}".encode() for n in range(90)]
    assert stream.query.isActive
