"""What a broker does to a running stream: topics that move, connections cut, a restart."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from ports import free_port
from pyspark.sql import SparkSession
from tenacity import Retrying, stop_after_delay, wait_fixed
from topic import LiveTopic, Outgoing

from bronze.admin import PulsarAdmin
from bronze.checkpoint import Running
from bronze.ingest import ingest
from bronze.settings import LakeSettings
from lakehouse.broker import Broker, start_broker

DEADLINE_SECONDS = 120

pytestmark = pytest.mark.timeout(400)


class OwnBroker:
    """A broker for these tests alone, as they stop it."""

    def __init__(self, settings: LakeSettings) -> None:
        self.settings = settings
        self._broker = start_broker(settings)

    def stop(self) -> None:
        self._broker.stop()

    def restart(self) -> None:
        self.stop()
        self._broker = start_broker(self.settings)


@pytest.fixture(scope="module")
def own_broker(
    broker: Broker, suite_settings: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnBroker]:
    own = OwnBroker(
        suite_settings.model_copy(
            update={
                "home": tmp_path_factory.mktemp("faults"),
                "pulsar_url": f"pulsar://127.0.0.1:{free_port()}",
                "pulsar_admin_url": f"http://127.0.0.1:{free_port()}",
            }
        )
    )
    yield own
    own.stop()


@pytest.fixture
def topic(own_broker: OwnBroker, tmp_path: Path) -> LiveTopic:
    own = {"home": tmp_path, "pulsar_namespace": f"public/{uuid.uuid4().hex}"}
    return LiveTopic(own_broker.settings.model_copy(update={**own, "trigger": "0 seconds"}), "o", 2)


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


def unload(own_broker: OwnBroker, topic: LiveTopic) -> None:
    """The broker gives up the topic, as when another takes it over; connections are cut."""
    with PulsarAdmin(topic.settings.connection) as admin:
        for number in (0, 1):
            admin.unload(f"{topic.name}-partition-{number}")


def restart(own_broker: OwnBroker, topic: LiveTopic) -> None:
    own_broker.restart()


@pytest.mark.parametrize("fault", [unload, restart])
def test_a_stream_goes_on_and_lands_each_message_once(
    own_broker: OwnBroker,
    topic: LiveTopic,
    stream: Running,
    fault: Callable[[OwnBroker, LiveTopic], None],
) -> None:
    topic.send(numbered(0, 50))
    landed(topic, stream, 50)
    fault(own_broker, topic)
    topic.send(numbered(50, 90))
    expected = [f"{n:04d}".encode() for n in range(90)]
    assert landed(topic, stream, 90) == expected
    assert stream.query.isActive
