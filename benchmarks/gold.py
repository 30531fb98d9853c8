"""Measures the cost of gold by the size of silver and by the number of changes.

    python -m benchmarks.gold [--lines 50000 --lines 1000000] [--changes 100 --changes 10000]

For each size of silver, it prints the sum of the seconds of the models, and the seconds of the
builds: of the first one, of builds after a number of new order lines and as many changed users, and
of a full refresh. After each number of changes, gold is built while the models with `build_after`
wait, as in continuous `lakehouse gold`. After as many changes more, all models are computed. It
then prints, by model, the seconds of the last build before the refresh and the rows that it wrote.
If the seconds of a model grow with the size and its rows do not, its cost grows with the state.

At any size, invoices have three lines and accounts twenty, so that a change touches as many rows in
a large silver as in a small one. The seconds of the models do not include dbt's tests.
"""

import contextlib
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.silver import USER, Bench, session
from gold.build import prepare_build
from gold.catalog import register
from gold.dbt.process import WarmDbt
from gold.lock import alone
from gold.tables import BUILT, last_published
from lake.tables.lake import Lake
from lakehouse.runtime.terminal import print_rows
from lakehouse.sql.endpoint import start_endpoint

SIZES = [50_000, 1_000_000]
CHANGES = [100, 10_000]
LINES_OF_USER = 20
ORDER = """to_json(named_struct('invoiceId', {n} div 3, 'lineItemId', {n} % 3, 'userId', {id},
  'itemId', pmod(hash({n}), 1000), 'itemName', 'tea', 'itemCategory', 'tea', 'price', 3.25,
  'createdAt', 1700000000000 + {n} * 1000, 'paidAt', 1700000000000 + {n} * 1000))"""

# Metrics of a commit, as Spark and delta-rs name them.
CHANGED_ROWS = [
    *(f"numTargetRows{how}" for how in ("Inserted", "Updated", "Deleted")),
    *(f"num_target_rows_{how}" for how in ("inserted", "updated", "deleted")),
]
ADDED_ROWS = ["numOutputRows", "num_added_rows"]


@dataclass(frozen=True)
class Build:
    """Seconds of each model, and the rows that it inserted, updated or deleted.

    elapsed: seconds from the start of the build until it was published. As in continuous gold, only
        the first build loads dbt.
    """

    elapsed: float
    seconds: dict[str, float]
    rows: dict[str, int]


def main(
    lines: Annotated[list[int], typer.Option(help="Order lines in silver.")] = SIZES,
    changes: Annotated[
        list[int], typer.Option(help="Number of new lines and of changed users.")
    ] = CHANGES,
) -> None:
    """Print the seconds of the builds."""
    with session() as (spark, folder):
        builds = {size: measure(Bench(spark, folder / str(size)), size, changes) for size in lines}
    names = [
        "first",
        *(f"{count:,} changes{how}" for count in changes for how in (", some wait", "")),
        "full refresh",
    ]
    header = [f"{name} s" for name in names]
    summed = {size: [sum(b.seconds.values()) for b in found] for size, found in builds.items()}
    elapsed = {size: [build.elapsed for build in found] for size, found in builds.items()}
    for what, took in (("sum of the models", summed), ("from start to publication", elapsed)):
        rows = [(f"{size:,}", *(f"{each:.1f}" for each in took[size])) for size in lines]
        print_rows((f"order lines; {what}", *header), rows)
    last = {size: found[-2] for size, found in builds.items()}
    columns = [f"{what} of {size:,} lines" for size in lines for what in ("seconds", "rows")]
    models = [
        (name, *(f"{cell:,}" for build in last.values() for cell in cells(build, name)))
        for name in last[lines[-1]].seconds
    ]
    print_rows((names[-2], *columns), models)


def cells(build: Build, model: str) -> tuple[float, int]:
    """The seconds and the rows of a model in a build, as they are printed."""
    return round(build.seconds[model], 1), build.rows[model]


def measure(lake: Bench, size: int, changes: list[int]) -> list[Build]:
    """Build gold on a silver of that size: first, after each number of changes, then in full."""
    users = size // LINES_OF_USER
    settings = lake.create().settings
    lake.fill(users)
    order_lines(lake, size, users, files=4)
    lake.refine()
    drop_catalog(lake.spark)
    register(lake.spark, lake.lake)
    builds = []
    with contextlib.ExitStack() as stack:
        stack.callback(start_endpoint(lake.spark, settings).stop)
        warm = stack.enter_context(contextlib.closing(WarmDbt()))
        builds.append(timed_build(lake.lake, warm))
        for count in changes:
            for may_wait in (True, False):
                order_lines(lake, count, users)
                lake.put("users", USER, count, key=f"pmod(hash(n), {users})")
                lake.refine()
                builds.append(timed_build(lake.lake, warm, may_wait=may_wait))
        builds.append(timed_build(lake.lake, warm, full_refresh=True))
    return builds


def timed_build(
    lake: Lake, warm: WarmDbt, *, full_refresh: bool = False, may_wait: bool = False
) -> Build:
    """Build gold, and return what it took and wrote."""
    before = last_published(lake)
    with (
        alone(lake.settings),
        prepare_build(lake, full_refresh=full_refresh, may_wait=may_wait, warm=warm) as build,
    ):
        begun = time.monotonic()
        models = build.run().models
        elapsed = time.monotonic() - begun
    rows = {
        model.name: written(
            DeltaTable(lake.named(BUILT, model.name).path),
            since=before.built_versions[model.name] if before else -1,
        )
        for model in models
    }
    return Build(elapsed, {model.name: model.seconds for model in models}, rows)


def written(table: DeltaTable, since: int) -> int:
    """Rows inserted, updated or deleted by the commits of a table after a version."""
    count = 0
    for commit in table.history(table.version() - since) if table.version() > since else ():
        metrics = commit["operationMetrics"]
        merged = sum(int(metrics.get(name, 0)) for name in CHANGED_ROWS)
        count += merged or sum(int(metrics.get(name, 0)) for name in ADDED_ROWS)
    return count


def order_lines(lake: Bench, count: int, users: int, files: int = 1) -> None:
    """Append paid order lines. All lines of an invoice have the same user."""
    lake.put("orders", ORDER, count, key=f"pmod(hash(n div 3), {users})", files=files)


def drop_catalog(spark: SparkSession) -> None:
    """Remove the tables of another lake from the catalog."""
    for layer in ("bronze", "silver", "gold", "gold_build", "cut_gold_build"):
        spark.sql(f"DROP DATABASE IF EXISTS {layer} CASCADE")


if __name__ == "__main__":
    typer.run(main)
