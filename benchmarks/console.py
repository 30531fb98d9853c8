"""Measures what the console costs a process: processor time and memory, with two open pages.

The process has loaded what `lakehouse up` loads. Another process writes to the tables of bronze and
silver each second, as streams do. Run: `python -m benchmarks.console`. It needs Chromium, no Java.
"""

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import psutil

SECONDS = 60
TABLES = 40  # of gold, besides those of the shop
TESTS = Path(__file__).parents[1] / "tests" / "support"
WRITER = """
import datetime as dt, sys, time
from pathlib import Path
from quiet_lake import QuietLake, UTC
from served_console import quiet_settings
quiet = QuietLake(quiet_settings(Path(sys.argv[1])))
def write(batch):
    now = dt.datetime.now(UTC)
    for topic in ("users", "items", "orders"):
        quiet.land(topic, [b"{}"] * 100, now)
    quiet.enrich("orders", [{"invoice_id": n} for n in range(100)], now)
    quiet.audit(batch, now, users=100, items=100, orders=100)
write(0)
marts = {f"mart_{n}": [{"id": n}] for n in range(int(sys.argv[2]))}
quiet.publish(0, dt.datetime.now(UTC), **marts)
print("ready", flush=True)
batch = 0
while True:
    batch += 1
    begun = time.monotonic()
    write(batch)
    time.sleep(max(1 - (time.monotonic() - begun), 0))
"""


def used(process: psutil.Process) -> float:
    """The processor seconds of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


def main() -> None:
    """Measure the process without and with the console, and print the difference."""
    sys.path.append(str(TESTS))
    chromium = import_module("browser").chromium
    served = import_module("served_console")
    import lakehouse.up  # noqa: F401 - what `up` has loaded anyway
    from lake.tables.lake import Lake
    from lakehouse.console.server import console
    from lakehouse.report.snapshot import Snapshot

    process = psutil.Process()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        writer = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(home), str(TABLES)],
                env={"PYTHONPATH": f".:{TESTS}", "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(writer.kill)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        lake = Lake(served.quiet_settings(home))
        Snapshot(lake).rows("select count(*) as n from silver.enriched_orders")  # libraries warm
        memory = process.memory_info().rss
        browser = stack.enter_context(chromium())
        driver = process.memory_info().rss - memory  # of Playwright, in this process
        address = stack.enter_context(console(lake))
        for path in ("/", "/streams"):
            page, _, _ = stack.enter_context(served.opened(browser))
            page.goto(address + path)

        def measure(what: str) -> None:
            time.sleep(10)
            begun, before = time.monotonic(), used(process)
            time.sleep(SECONDS)
            share = (used(process) - before) / (time.monotonic() - begun)
            grown = process.memory_info().rss - memory - driver
            print(f"{len(lake.tables('gold')) + 8} tables, {what}, {SECONDS} s")
            print(f"processor: {share * 100:.2f} % of a core")
            print(f"memory: {grown / 1e6:.0f} MB more than without the console", flush=True)

        measure("two pages")
        page.goto(f"{address}/live?source=silver.enriched_orders")
        measure("two pages, of which one follows a table with 100 new rows a second")


if __name__ == "__main__":
    main()
