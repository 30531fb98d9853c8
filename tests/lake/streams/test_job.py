"""Tests the signals that stop a job."""

import subprocess
import sys

SIGNALLED = """
import os, subprocess, sys
from lake.streams.job import stop_signal

send = f"import os, time\\nfor _ in range(5000): os.kill({os.getpid()}, 2); time.sleep(2e-4)"
with stop_signal() as stop:
    sender, seen = subprocess.Popen([sys.executable, "-c", send]), 0
    while sender.poll() is None:
        seen += stop.wait(1e-5)
        stop.clear()
print("signals seen:", seen > 0)
"""


def test_a_signal_may_come_while_the_main_thread_waits_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout[-19:]) == (0, "signals seen: True\n"), done.stderr[-2000:]
