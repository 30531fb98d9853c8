"""Tests that every message lands once although the driver is killed at seeded points.

The driver is `lakehouse bronze` in its own process group, so `kill -9` ends Python, JVM and workers
at once. A point is a delay after Spark or Delta writes its n-th file of a kind, or after the start.
There are TEST_KILLS points, 1 if not set, because each requires a start of Spark. The first
is right after the table has a batch that the checkpoint does not. A final SIGTERM must end the
driver with exit code 0. `make test` has no such kill: there, `test_ingest.py` takes away the files
that a kill would have prevented.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from live_shop import until
from topic import LiveTopic, Outgoing

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker

KILLS = int(os.environ.get("TEST_KILLS", "1"))
PER_BATCH = 20
SECONDS_PER_KILL = 90

pytestmark = pytest.mark.timeout(KILLS * SECONDS_PER_KILL + 300)

TOPICS = """
[topics.o]
kind = "events"
key = ["id"]
partitions = 3
fields = { id = "long" }
"""


class Point(NamedTuple):
    """When to kill: `seconds` after the `count`-th new file of a log, or after the start."""

    log: str | None
    count: int
    seconds: float


def points(seed: int) -> list[Point]:
    rng = random.Random(seed)
    found = []
    for _ in range(KILLS):
        log = rng.choice(["offsets", "offsets", "table", "table", "commits", None])
        seconds = rng.choice([0, rng.random() / 5]) if log else 8 * rng.random()
        found.append(Point(log, rng.randint(1, 3), seconds))
    return found


class Driver:
    """Starts `lakehouse bronze` on one lake and watches the files it writes."""

    def __init__(self, settings: LakeSettings, folder: Path) -> None:
        (folder / "topics.toml").write_text(TOPICS)
        self.table = Path(settings.table_path("bronze", "o"))
        checkpoint = Path(settings.checkpoint_path("bronze.o"))
        self._folders = {
            "offsets": checkpoint / "offsets",
            "commits": checkpoint / "commits",
            "table": self.table / "_delta_log",
        }
        self._log = folder / "driver.log"
        self._environment = {
            **os.environ,
            "LAKEHOUSE_HOME": str(settings.home),
            "LAKEHOUSE_TOPICS": str(folder / "topics.toml"),
            "LAKEHOUSE_PULSAR_URL": settings.pulsar_url,
            "LAKEHOUSE_PULSAR_ADMIN_URL": settings.pulsar_admin_url,
            "LAKEHOUSE_PULSAR_NAMESPACE": settings.pulsar_namespace,
            "LAKEHOUSE_TRIGGER": "0 seconds",
            "LAKEHOUSE_MAX_MESSAGES_PER_TRIGGER": str(PER_BATCH),
        }

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [Path(sys.executable).with_name("lakehouse"), "bronze"],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_at(self, point: Point) -> None:
        """Start the driver, wait until it reaches the point, and kill it."""
        begun = self._files(point.log)
        process = self.start()
        deadline = time.monotonic() + SECONDS_PER_KILL
        while point.log and len(self._files(point.log) - begun) < point.count:
            assert process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"{point} was never reached"
            time.sleep(0.001)
        time.sleep(point.seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _files(self, log: str | None) -> set[str]:
        """Return the files of a log, without hidden drafts and checksums."""
        if log is None or not self._folders[log].exists():
            return set()
        names = os.listdir(self._folders[log])
        return {name for name in names if name.removesuffix(".json").isdigit()}


def landed(driver: Driver) -> Counter[bytes]:
    if not DeltaTable.is_deltatable(str(driver.table)):
        return Counter()
    return Counter(DeltaTable(driver.table).to_pyarrow_table()["payload"].to_pylist())


@pytest.mark.nightly
def test_nothing_is_lost_or_landed_twice_wherever_the_driver_is_killed(
    broker: Broker, settings: LakeSettings, tmp_path: Path
) -> None:
    topic = LiveTopic(settings, "o", 3)
    driver = Driver(settings, tmp_path)
    sent: Counter[bytes] = Counter()
    for number, point in enumerate(points(seed=13)):
        new = [Outgoing(b"%d-%d" % (number, n), key=str(n)) for n in range(4 * PER_BATCH)]
        topic.send(new, batched=number % 2 == 1)
        sent.update(message.payload for message in new)
        driver.kill_at(point)
        found = landed(driver)
        assert max(found.values(), default=1) == 1, f"landed twice after kill {number} at {point}"
        assert found <= sent
    sent.update(message.payload for message in topic.send([Outgoing(b"last")]))
    end = driver.start()
    until(lambda: landed(driver) == sent or end.poll() is not None, "all messages to land")
    end.terminate()
    assert end.wait(timeout=60) == 0
    assert landed(driver) == sent
