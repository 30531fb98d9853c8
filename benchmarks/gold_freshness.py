"""Measures how long after its publication an order is counted in gold.

    python -m benchmarks.gold_freshness [--rate 100] [--seconds 600]

Bronze, silver and gold run as in `lakehouse up`, in one process, and gold is built again whenever
silver has changed. An order can be read in `gold.reward_points` from the first publication of gold
that was built from silver's batch with the order. It prints the seconds between the broker's
publish time and that publication.
"""

import contextlib
import multiprocessing
import time
from threading import Event, Thread
from typing import Annotated, Any

import typer
from deltalake import DeltaTable
from pyspark.sql import functions as F

from benchmarks.silver import report, send, session, streaming
from gold.catalog import register
from gold.dbt.results import BuildResult
from gold.refresh import keep_fresh
from gold.tables import CUTS
from lake.tables.lake import Lake
from lakehouse.runtime.terminal import print_rows
from lakehouse.sql.endpoint import start_endpoint


def main(
    rate: Annotated[int, typer.Option(help="Orders per second.")] = 100,
    seconds: Annotated[int, typer.Option(help="Measured seconds.")] = 600,
    warm_up: Annotated[int, typer.Option(help="Warm-up seconds, with the first build.")] = 120,
    users: Annotated[int, typer.Option(help="Accounts.")] = 5_000,
) -> None:
    """Print the age of orders when they can be read in gold, and the builds."""
    with session() as (spark, folder), contextlib.ExitStack() as stack:
        bench, lake, running = stack.enter_context(streaming(spark, folder, users))
        register(spark, lake)
        stack.callback(start_endpoint(spark, lake.settings).stop)
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(lake.settings, rate, warm_up + seconds, users)
        )
        sender.start()
        stop, builds = Event(), list[Any]()
        builder = Thread(target=lambda: builds.extend(keep_fresh(lake, stop)))
        builder.start()
        sender.join()
        path = bench.path("silver", "enriched_orders")
        while DeltaTable(path).count() < rate * (warm_up + seconds):
            time.sleep(1)
        found = spark.read.format("delta").load(path)
        [[wanted]] = found.agg(F.max("arrived_batch")).collect()
        while not (made := publications(lake)) or max(made) < wanted:
            builder.join(1)
            if not builder.is_alive():
                message = f"Gold ended before it had the last orders: {builds[-1:]}"
                raise RuntimeError(message)
        stop.set()
        builder.join()
        for each in running:
            each.stop()
        report(found, readable(publications(lake), wanted), warm_up)
        good = [each for each in builds if isinstance(each, BuildResult)]
        print_rows(("builds", "failed"), [(len(good), len(builds) - len(good))])


def publications(lake: Lake) -> dict[int, float]:
    """The epoch seconds of each publication, by the batch of silver that it was built from."""
    if not lake.table(CUTS).exists():
        return {}
    rows = lake.table(CUTS).arrow.rows(["silver_batch", "published_at"])
    return {row["silver_batch"]: row["published_at"].timestamp() for row in rows}


def readable(made: dict[int, float], last: int) -> dict[int, float]:
    """The epoch seconds from which on each batch of silver can be read in gold."""
    return {
        batch: min(at for built_from, at in made.items() if built_from >= batch)
        for batch in range(last + 1)
    }


if __name__ == "__main__":
    typer.run(main)
