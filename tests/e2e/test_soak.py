"""Tests that `lakehouse up` under constant load for an hour neither grows nor loses messages.

The test takes TEST_SOAK seconds; it is skipped if the variable is not set.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import httpx
import psutil
import pytest
import structlog
from live_shop import LiveShop, assert_right, until
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from shop_lake import ShopLake

from lake.settings.settings import LakeSettings
from lakehouse.runtime.ports import free_port

SECONDS = int(os.environ.get("TEST_SOAK", "0"))
LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
EVERY_SECONDS = 5
# Allowed growth from the second to the last quarter of the time, as a factor.
MEMORY, OTHERS, FILES = 1.15, 1.1, 1.1

log = structlog.get_logger()

pytestmark = [
    pytest.mark.skipif(not SECONDS, reason="`make soak` runs this for an hour"),
    pytest.mark.timeout(SECONDS + 900),
]


def sizes(up: psutil.Process, settings: LakeSettings) -> dict[str, float]:
    """Return the sizes that must not grow, of all processes, the broker and the checkpoints."""
    found: dict[str, float] = defaultdict(float)
    for process in [up, *up.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            kind = "Java" if process.name() == "java" else "Python"
            found[f"{kind}: memory, MB"] += process.memory_full_info().pss / 1e6
            found[f"{kind}: threads"] += process.num_threads()
            found[f"{kind}: open files"] += process.num_fds()
            found[f"{kind}: processes"] += 1
    found["files of checkpoints"] = sum(1 for _ in settings.checkpoints_dir.rglob("*"))
    return found


def lag(port: int) -> float:
    """Return the number of messages in the topics that bronze has not landed."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    return sum(sample.value for sample in families["lakehouse_lag_messages"].samples)


def test_up_runs_for_an_hour_without_growing(
    spark: SparkSession, suite_settings: LakeSettings, tmp_path: Path
) -> None:
    port = free_port()
    own = {
        "home": tmp_path / "home",
        "pulsar_url": f"pulsar://127.0.0.1:{free_port()}",
        "pulsar_admin_url": f"http://127.0.0.1:{free_port()}",
        "sql_port": free_port(),
        "metrics_port": port,
        "trigger": f"{EVERY_SECONDS} seconds",
        "silver_trigger": f"{EVERY_SECONDS} seconds",
    }
    settings = suite_settings.model_copy(update=own)
    settings.home.mkdir()
    lake = ShopLake(spark, settings)
    env = {**os.environ, **{f"LAKEHOUSE_{name.upper()}": str(x) for name, x in own.items()}}
    said = tmp_path / "up.log"
    with said.open("wb") as output:
        up = psutil.Popen([LAKEHOUSE, "up"], env=env, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: "Running." in said.read_text(), "`lakehouse up` to start")
        with LiveShop(lake) as shop:
            samples: list[dict[str, float]] = []
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                assert up.poll() is None, said.read_text()[-2000:]
                samples.append(sizes(up, settings))
                with contextlib.suppress(psutil.TimeoutExpired):
                    up.wait(EVERY_SECONDS)
            sent = shop.stop()
        until(lambda: lag(port) == 0, "bronze to catch up")
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(120)
    assert up.returncode == 0
    lake.refine()  # the last landed messages
    assert_right(lake, sent)
    quarter = len(samples) // 4
    for name in samples[-1]:
        before, after = (
            statistics.median(sample[name] for sample in part)
            for part in (samples[quarter : 2 * quarter], samples[-quarter:])
        )
        log.info(name, second_quarter=round(before), last_quarter=round(after))
        limit = MEMORY if "memory" in name else FILES if "files of" in name else OTHERS
        assert after <= before * limit, f"{name} grows: {before:,.0f}, then {after:,.0f}"
