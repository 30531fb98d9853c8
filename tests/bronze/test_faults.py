"""Tests a running stream with failures of the broker or the disk."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable
from live_shop import until
from pyspark.sql import SparkSession
from tcp_proxy import TcpProxy
from tenacity import Retrying, stop_after_delay, wait_fixed
from topic import LiveTopic, Outgoing

from bronze.ingest import ingest
from bronze.lag import topic_lag
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lakehouse.runtime.broker import Broker, start_broker
from lakehouse.runtime.ports import FIRST, LAST, free_port
from pulsar_spark.broker.admin import PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import Position

DEADLINE_SECONDS = 120

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings) -> LiveTopic:
    return LiveTopic(settings.model_copy(update={"trigger": "0 seconds"}), "o", 2)


class FragileBroker:
    """A separate broker that clients reach only through a proxy."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self.proxy = TcpProxy(urlsplit(settings.pulsar_url).port or 0)
        self.url = f"pulsar://127.0.0.1:{self.proxy.port}"
        self.admin_url = settings.pulsar_admin_url
        self.start()

    def start(self) -> None:
        listener = {"advertisedListeners": f"cut:{self.url}", "internalListenerName": "cut"}
        self._broker = start_broker(self._settings, extra=listener)

    def stop(self) -> None:
        self._broker.stop()

    def bookie_port(self) -> int:
        """The port that the bookie must keep, because ledgers refer to it."""
        cookie = self._settings.home_dir / "pulsar" / "bookkeeper" / "current" / "VERSION"
        [port] = re.findall(r'bookieHost: ".*:(\d+)"', cookie.read_text())
        return int(port)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FragileBroker]:
    settings = load_settings(
        home=tmp_path_factory.mktemp("fragile"),
        pulsar_url=f"pulsar://127.0.0.1:{free_port()}",
        pulsar_admin_url=f"http://127.0.0.1:{free_port()}",
    )
    broker = FragileBroker(settings)
    yield broker
    broker.stop()
    broker.proxy.close()


@pytest.fixture
def fragile_topic(fragile: FragileBroker, settings: LakeSettings) -> LiveTopic:
    own = {
        "pulsar_url": fragile.url,
        "pulsar_admin_url": fragile.admin_url,
        "trigger": "0 seconds",
    }
    return LiveTopic(settings.model_copy(update=own), "o", 2)


@contextmanager
def streaming(spark: SparkSession, topic: LiveTopic) -> Iterator[Stream]:
    [running] = ingest(spark, Lake(topic.settings, topic.topics))
    yield running
    running.stop()


@pytest.fixture
def fragile_stream(spark: SparkSession, fragile_topic: LiveTopic) -> Iterator[Stream]:
    with streaming(spark, fragile_topic) as running:
        yield running


@pytest.fixture
def stream(spark: SparkSession, topic: LiveTopic) -> Iterator[Stream]:
    with streaming(spark, topic) as running:
        yield running


def payloads(topic: LiveTopic) -> list[bytes]:
    table = DeltaTable(topic.settings.table_path("bronze", "o")).to_pyarrow_table()
    return sorted(table["payload"].to_pylist())


def landed(topic: LiveTopic, stream: Stream, count: int) -> list[bytes]:
    """Return the payloads once there are `count` of them or the stream has stopped."""

    def look() -> list[bytes]:
        found = payloads(topic)
        assert len(found) >= count or not stream.query.isActive
        return found

    patient = Retrying(stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.5), reraise=True)
    return patient(look)


def numbered(first: int, end: int) -> list[Outgoing]:
    return [Outgoing(f"{n:04d}".encode(), key=str(n)) for n in range(first, end)]


def test_a_stream_continues_when_the_broker_gives_up_its_topic(
    topic: LiveTopic, stream: Stream
) -> None:
    """As when another broker takes over the topic: connections are closed."""
    topic.send(numbered(0, 50))
    landed(topic, stream, 50)
    with PulsarAdmin(topic.settings.connection) as admin:
        for number in (0, 1):
            admin.unload(f"{topic.name}-partition-{number}")
    topic.send(numbered(50, 90))
    assert landed(topic, stream, 90) == [f"{n:04d}".encode() for n in range(90)]
    assert stream.query.isActive


def test_the_last_readable_position_is_found_while_the_broker_loads_the_topic(
    topic: LiveTopic,
) -> None:
    """The broker answers "no such topic" for transactions of a topic it has not loaded."""
    [sent] = topic.send([Outgoing(b"here", key="1")])
    partition = f"{topic.name}-partition-{sent.partition}"
    with PulsarAdmin(topic.settings.connection) as admin:
        admin.unload(partition)
        assert admin.last_readable(partition) == Position(sent.ledger, sent.entry)
        topic.delete()
        with pytest.raises(TopicNotFoundError):
            admin.last_readable(partition)


@pytest.mark.nightly
def test_a_stream_survives_a_broker_restart(
    fragile: FragileBroker, fragile_topic: LiveTopic, fragile_stream: Stream
) -> None:
    fragile_topic.send(numbered(0, 50))
    landed(fragile_topic, fragile_stream, 50)
    fragile.stop()
    port = fragile.bookie_port()
    assert FIRST <= port < LAST, "an outgoing connection could take this port meanwhile"
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(BrokerError, match="Failed to start.*; .*Address already in use"),
    ):
        fragile.start()
    fragile.start()
    fragile_topic.send(numbered(50, 90))
    found = landed(fragile_topic, fragile_stream, 90)
    assert found == [f"{n:04d}".encode() for n in range(90)]
    assert fragile_stream.query.isActive


def test_a_stream_survives_broken_connections_while_it_reads(
    fragile: FragileBroker, fragile_topic: LiveTopic, fragile_stream: Stream
) -> None:
    """The messages are so large that connections break in the middle of one."""
    cuts, sent = 0, 0
    for _ in range(8):
        fragile_topic.send([Outgoing(b"%04d" % n + bytes(300_000)) for n in range(sent, sent + 20)])
        sent += 20
        cuts += wait_for_a_reader_and_cut(fragile, fragile_topic)
    found = landed(fragile_topic, fragile_stream, sent)
    assert [payload[:4] for payload in found] == [b"%04d" % n for n in range(sent)]
    assert fragile_stream.query.isActive
    assert cuts >= 4, "too few connections were cut while messages arrived"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small separate file system; the test skips if it cannot be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_stream_continues_when_a_full_disk_has_space_again(
    spark: SparkSession, topic: LiveTopic, small_disk: Path
) -> None:
    patience = {"lake": small_disk, "restarts": 100, "restart_delay": 0.2}
    tried = LiveTopic(topic.settings.model_copy(update=patience), "o", 2)
    tried.send(numbered(0, 20))
    [stream] = ingest(spark, Lake(tried.settings, tried.topics))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(stream.keep, stop)
        try:
            until(lambda: len(payloads(tried)) == 20, "the first messages")
            fill(small_disk / "filler")
            tried.send(numbered(20, 60))
            until(lambda: not stream.query.isActive, "the failure of the stream")
            (small_disk / "filler").unlink()
            until(lambda: len(payloads(tried)) >= 60, "the other messages")
        finally:
            stop.set()
        kept.result()
    assert payloads(tried) == [f"{n:04d}".encode() for n in range(60)]


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass


def wait_for_a_reader_and_cut(fragile: FragileBroker, topic: LiveTopic) -> int:
    """Break the open connections, unless all messages have landed; returns how many were broken."""

    def cut() -> int:
        with PulsarAdmin(topic.settings.connection) as admin:
            lag = topic_lag(admin, Lake(topic.settings, topic.topics), "o").entries
        broken = fragile.proxy.cut() if lag else 0
        assert broken or not lag
        return broken

    patient = Retrying(stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.01), reraise=True)
    return patient(cut)
