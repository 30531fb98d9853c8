"""Measures the lakehouse and the same job on Apache Flink, one after the other on one machine.

    python -m benchmarks.flink [--orders 2000000] [--rate 1000] [--seconds 60]

Each system has its own topics with the same messages, on the same broker, and starts from nothing.

1. Backfill: orders, users and items are already in the topics.
2. Orders arrive at an even rate.
3. The missing users are published.
4. Parts of the system are killed.
5. The lakehouse runs with a longer interval between batches.

Prints the figures of both systems, and whether both tables have the expected rows.
docs/benchmarks.md says how the two systems differ.
"""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.flink.systems import Flink, Lakehouse
from benchmarks.flink.trial import Figure, Plan, Trial
from lake.observe.logs import configure_logs
from lake.settings.settings import load_settings
from lake.topics.topic_file import load_topics
from lakehouse.runtime.broker import start_broker
from lakehouse.runtime.terminal import print_rows

CORES = 2


def main(
    orders: Annotated[int, typer.Option(help="Order lines of the backfill.")] = 2_000_000,
    users: Annotated[int, typer.Option(help="Users.")] = 117_178,
    rate: Annotated[int, typer.Option(help="Orders per second afterwards.")] = 1_000,
    seconds: Annotated[int, typer.Option(help="Seconds in which freshness is measured.")] = 60,
    warm_up: Annotated[int, typer.Option(help="Warm-up seconds, in which Java compiles.")] = 20,
    recovery: Annotated[int, typer.Option(help="Seconds of orders around each kill.")] = 40,
) -> None:
    """Measure both systems, and print their figures side by side."""
    configure_logs()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # run cleanups
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # child processes inherit it
    plan = Plan(orders, users, rate, seconds, warm_up, recovery)
    trials = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = load_settings(home=Path(folder))
        broker = start_broker(settings)
        stack.callback(broker.stop)
        for system in (Lakehouse, Flink):
            home, namespace = Path(folder) / system.__name__, f"public/{system.__name__.lower()}"
            mine = load_settings(home=home, pulsar_namespace=namespace)
            trial = Trial(system(mine), plan)
            trial.run(load_topics(mine.topics), broker.pid)
            trials[system.name] = trial
        report(trials)
        compare(trials)


def report(trials: dict[str, Trial]) -> None:
    """Print the figures, and how many times better the lakehouse's are."""
    ours, theirs = (trials[system.name].figures for system in (Lakehouse, Flink))
    rows = []
    for name in {**ours, **theirs}:
        mine, other = ours.get(name), theirs.get(name)
        if mine and mine.beside:
            other = theirs.get(mine.beside)
        rows.append((name, show(mine), show(other), ratio(mine, other)))
    print_rows(("measured", Lakehouse.name, Flink.name, "ahead by"), rows)


def show(figure: Figure | None) -> str:
    """A figure as text."""
    return format(figure.value, figure.form) if figure else ""


def ratio(ours: Figure | None, theirs: Figure | None) -> str:
    """How many times better our figure is. Below 1 it is worse. Empty if it cannot be computed."""
    if not ours or not theirs or not ours.value or not theirs.value:
        return ""
    return f"{(ours.value / theirs.value) ** ours.ahead:.2f}"


def compare(trials: dict[str, Trial]) -> None:
    """Print whether both tables have exactly the expected rows."""
    rows = [(name, *(f"{n:,}" for n in trial.check())) for name, trial in trials.items()]
    print_rows(("table", "rows expected", "found", "missing or wrong", "not expected"), rows)


if __name__ == "__main__":
    typer.run(main)
