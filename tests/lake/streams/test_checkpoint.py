"""Tests that one process owns a checkpoint as long as it lives."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from lake.streams.checkpoint import claim
from pulsar_spark.errors import CheckpointError

QUERY = "bronze.orders"
DRIVER = f"""
import sys
from pathlib import Path
from lake.streams.checkpoint import claim
from lake.settings.settings import load_settings

held = claim(load_settings(home=Path(sys.argv[1])), "{QUERY}")
print("claimed", flush=True)
sys.stdin.readline()
print("went on", flush=True)
"""


def test_no_other_process_takes_the_place_of_a_stopped_one(tmp_path: Path) -> None:
    """There is no lease that could expire while the process is stopped."""
    settings = load_settings(home=tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin
        assert driver.stdout
        assert driver.stdout.readline() == "claimed\n"
        driver.send_signal(signal.SIGSTOP)
        with pytest.raises(CheckpointError, match="already runs in another process"):
            claim(settings, QUERY)
        driver.send_signal(signal.SIGCONT)
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "went on\n"
    claim(settings, QUERY).release()
