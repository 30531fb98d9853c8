"""Tests that bronze, silver and gold are correct after random kills under load.

The broker, the driver with its executors, a Python worker and dbt are killed with `kill -9`. Then
the tables are compared with what plain Python computes from the broker's messages. The test takes
TEST_CHAOS seconds, plus minutes to catch up; it is skipped if the variable is not set.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pulsar
import pytest
from deltalake import DeltaTable
from gold_checks import assert_gold_is_right
from live_shop import assert_right, shop_message, until
from model import Message, Position
from pyspark.sql import SparkSession
from shop_lake import ShopLake

from gold.tables import last_published
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import broker_answers, left_over_broker, start_broker
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import LakehouseError
from silver.audit.snapshots import latest_snapshot
from silver.contract.tables import CUTS, RECONCILIATION

SECONDS = int(os.environ.get("TEST_CHAOS", "0"))
LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
POSITION = ("ledger", "entry", "batch_index", "partition")

pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="`make chaos` runs this for ten minutes"),
    pytest.mark.timeout(SECONDS + 1500),
]


class Shop:
    """Publishes through every fault, and counts the messages that the broker acknowledged."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self.acknowledged = 0

    def __enter__(self) -> "Shop":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _publish(self) -> None:
        rng = random.Random(11)
        number = 0
        while not self._stop.is_set():
            with contextlib.suppress(pulsar.PulsarException), self._client() as client:
                producers: dict[str, pulsar.Producer] = {}
                while not self._stop.wait(0.01):
                    kind, key, payload = shop_message(rng, number)
                    if kind not in producers:
                        topic = self._settings.full_topic(kind)
                        producers[kind] = client.create_producer(topic, send_timeout_millis=5000)
                    number += 1
                    producers[kind].send(payload, partition_key=key)
                    self.acknowledged += 1

    @contextlib.contextmanager
    def _client(self) -> Iterator[pulsar.Client]:
        client = self._settings.connection.client()
        try:
            yield client
        finally:
            with contextlib.suppress(pulsar.PulsarException):
                client.close()


class Lakehouse:
    """Starts and kills a broker, `lakehouse up` and `lakehouse gold` as separate processes."""

    def __init__(self, settings: LakeSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        own = {name: value for name, value in os.environ.items() if name != "LAKEHOUSE_RESTARTS"}
        self._environment = {
            **own,  # streams start again by themselves, as those of users do
            "LAKEHOUSE_HOME": str(settings.home),
            "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
            "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
            "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        }
        self.killed: Counter[str] = Counter()

    def start(self) -> None:
        """Start the processes that are not running, as an operator does.

        `up` also starts a broker if it finds none; then one of the two brokers gives way.
        """
        if not broker_answers(self._settings):
            with contextlib.suppress(LakehouseError):
                start_broker(self._settings)
        for name, command in (("up", ["up"]), ("gold", ["gold", "--every", "5s"])):
            if name not in self._jobs or self._jobs[name].poll() is not None:
                with (self._folder / f"{name}.log").open("ab") as log:
                    self._jobs[name] = subprocess.Popen(
                        [LAKEHOUSE, *command],
                        env=self._environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )

    def kill(self, victim: str) -> None:
        """Kill one of the processes with SIGKILL, if it is running."""
        found = {
            "broker": self._broker,
            "driver": lambda: children(self._jobs["up"].pid, lambda _: True),
            "gold": lambda: children(self._jobs["gold"].pid, lambda _: True),
            "worker": lambda: children(self._jobs["up"].pid, lambda c: "pyspark.daemon" in c)[-1:],
            "dbt": lambda: children(self._jobs["gold"].pid, lambda c: "gold.dbt" in c),
        }[victim]()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(map(lives, found)), f"the end of {victim}")  # frees its ports
        self.killed[victim] += bool(found)

    def build(self) -> None:
        """Build all models of gold once. In continuous gold, those with `build_after` wait."""
        gold = self._jobs.pop("gold")
        gold.terminate()
        gold.wait(timeout=120)
        command = [LAKEHOUSE, "gold", "--available-now"]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _broker(self) -> list[int]:
        running = left_over_broker(self._settings)
        return [running.pid] if running else []

    def stop(self) -> None:
        for job in self._jobs.values():
            job.terminate()
        for job in self._jobs.values():
            job.wait(timeout=120)
        running = left_over_broker(self._settings)
        if running:
            running.stop()


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def children(pid: int, wanted: Callable[[str], bool]) -> list[int]:
    """Return a process and its descendants, filtered by their command lines."""
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            commands[int(folder.name)] = (folder / "cmdline").read_text()
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return [one for one in found if wanted(commands.get(one, ""))]


def messages_of(lake: ShopLake) -> list[Message]:
    """Return all messages that the broker stores."""
    found = []
    client = lake.settings.connection.client()
    for name in lake.topics.topics:
        topic = lake.settings.full_topic(name)
        for number, partition in enumerate(client.get_topic_partitions(topic)):
            reader = client.create_reader(partition, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=10_000)
                place = message.message_id()
                position = Position(
                    place.ledger_id(),
                    place.entry_id(),
                    max(place.batch_index(), 0),
                    -1 if partition == topic else number,
                )
                found.append(Message(name, position, message.partition_key(), message.data()))
    client.close()
    return found


def booked(lake: ShopLake) -> int:
    """Return the number of messages in silver's audit table."""
    if not Lake(lake.settings).table(RECONCILIATION).exists():
        return 0
    table = DeltaTable(Lake(lake.settings).table(RECONCILIATION).path).to_pyarrow_table()
    return sum(table["messages_in"].to_pylist())


def gold_is_fresh(lake: ShopLake) -> bool:
    silver, gold = latest_snapshot(Lake(lake.settings)), last_published(Lake(lake.settings))
    return silver is not None and gold is not None and gold.silver_batch == silver.silver_batch


def test_all_layers_are_correct_after_random_kills(
    spark: SparkSession, suite_settings: LakeSettings, tmp_path: Path
) -> None:
    settings = suite_settings.model_copy(
        update={
            "home": tmp_path / "home",
            "pulsar_url": f"pulsar://127.0.0.1:{free_port()}",
            "pulsar_admin_url": f"http://127.0.0.1:{free_port()}",
            "sql_port": free_port(),
        }
    )
    settings.home.mkdir()
    lake = ShopLake(spark, settings)
    rng = random.Random(SECONDS)
    victims = ["broker", "driver", "gold", "worker", "dbt"]
    lakehouse = Lakehouse(settings, tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(lakehouse.stop)
        lakehouse.start()
        create_topics(Lake(settings, lake.topics))
        shop = stack.enter_context(Shop(settings))
        until(lambda: Lake(settings).table(CUTS).exists(), "the first batch of silver")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            lakehouse.kill(victims[sum(lakehouse.killed.values()) % len(victims)])
            lakehouse.start()
            threading.Event().wait(rng.uniform(1, 25))
        shop.__exit__()
        sent = messages_of(lake)
        assert len(sent) >= shop.acknowledged > SECONDS

        def settled() -> bool:
            lakehouse.start()
            return booked(lake) >= len(sent) and gold_is_fresh(lake)

        until(settled, "silver and gold to catch up", 1200)
        lakehouse.build()
        assert all(lakehouse.killed[victim] for victim in victims)
        for topic in lake.topics.topics:
            rows = DeltaTable(settings.table_path("bronze", topic)).to_pyarrow_table()
            landed = Counter(zip(*(rows[name].to_pylist() for name in POSITION), strict=True))
            assert landed == Counter(m.position[:4] for m in sent if m.topic == topic), topic
    assert_right(lake, sent)
    assert_gold_is_right(lake)
