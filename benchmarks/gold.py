"""What gold costs, by the size of silver and by what changed.

    python -m benchmarks.gold [--lines 50000 --lines 1000000] [--changes 100 --changes 10000]

Seconds of the models, for each size of silver: of the first build; of builds after so many new
order lines and as many changed users; and of a full refresh. Then, by model, the seconds of the
last build before the refresh and the rows that it wrote: what grows there from one size to the next
though its rows do not, grows with the state. Invoices have three lines and accounts twenty at any
size, so that a change touches as many rows of a large silver as of a small one. Tests of dbt are
left out of the seconds, as they read whole tables by intent.
"""

import contextlib
from dataclasses import dataclass
from typing import Annotated

import typer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.silver import USER, Bench, session
from gold.build import build_gold
from gold.catalog import register
from gold.publish import last_published
from gold.tables import BUILT
from lake.settings.settings import LakeSettings
from lakehouse.runtime.console import print_rows
from lakehouse.sql.endpoint import start_endpoint

SIZES = [50_000, 1_000_000]
CHANGES = [100, 10_000]
LINES_OF_USER = 20
ORDER = """to_json(named_struct('invoiceId', {n} div 3, 'lineItemId', {n} % 3, 'userId', {id},
  'itemId', pmod(hash({n}), 1000), 'itemName', 'tea', 'itemCategory', 'tea', 'price', 3.25,
  'createdAt', 1700000000000 + {n} * 1000, 'paidAt', 1700000000000 + {n} * 1000))"""


@dataclass(frozen=True)
class Build:
    """Seconds of each model, and the rows that it inserted, updated or deleted."""

    seconds: dict[str, float]
    rows: dict[str, int]


def main(
    lines: Annotated[list[int], typer.Option(help="Order lines in silver.")] = SIZES,
    changes: Annotated[list[int], typer.Option(help="New lines, and changed users.")] = CHANGES,
) -> None:
    """Print the seconds of the builds."""
    with session() as (spark, folder):
        builds = {size: measure(Bench(spark, folder / str(size)), size, changes) for size in lines}
    names = ["first", *(f"{count:,} changes" for count in changes), "full refresh"]
    rows = []
    for size, found in builds.items():
        took = [sum(build.seconds.values()) for build in found]
        rows.append((f"{size:,}", *(f"{each:.1f}" for each in took), f"{took[-1] / took[-2]:.1f}"))
    print_rows(("order lines", *(f"{name} s" for name in names), "last ratio"), rows)
    last = {size: found[-2] for size, found in builds.items()}
    header = [f"{what} of {size:,} lines" for size in lines for what in ("seconds", "rows")]
    models = [
        (name, *(f"{cell:,}" for build in last.values() for cell in cells(build, name)))
        for name in last[lines[-1]].seconds
    ]
    print_rows((names[-2], *header), models)


def cells(build: Build, model: str) -> tuple[float, int]:
    """What is printed of a model of a build."""
    return round(build.seconds[model], 1), build.rows[model]


def measure(lake: Bench, size: int, changes: list[int]) -> list[Build]:
    """Build gold of a silver of that size: first, after each number of changes, in full."""
    users = size // LINES_OF_USER
    settings = lake.create().settings
    lake.fill(users)
    order_lines(lake, size, users, files=4)
    lake.refine()
    drop_catalog(lake.spark)
    register(lake.spark, settings, lake.topics)
    builds = []
    with contextlib.ExitStack() as stack:
        stack.callback(start_endpoint(lake.spark, settings).stop)
        builds.append(timed_build(settings))
        for count in changes:
            order_lines(lake, count, users)
            lake.put("users", USER, count, key=f"pmod(hash(n), {users})")
            lake.refine()
            builds.append(timed_build(settings))
        builds.append(timed_build(settings, full_refresh=True))
    return builds


def timed_build(settings: LakeSettings, *, full_refresh: bool = False) -> Build:
    """Build gold."""
    before = last_published(settings)
    models = build_gold(settings, full_refresh=full_refresh).models
    rows = {
        model.name: written(
            DeltaTable(settings.table_path(BUILT, model.name)),
            since=before.built_versions[model.name] if before else -1,
        )
        for model in models
    }
    return Build({model.name: model.seconds for model in models}, rows)


def written(table: DeltaTable, since: int) -> int:
    """Rows that the commits of a table after a version inserted, updated or deleted."""
    count = 0
    for commit in table.history(table.version() - since) if table.version() > since else ():
        metrics = commit["operationMetrics"]
        merged = [
            metrics.get(f"numTargetRows{how}", 0) for how in ("Inserted", "Updated", "Deleted")
        ]
        count += sum(map(int, merged)) or int(metrics.get("numOutputRows", 0))
    return count


def order_lines(lake: Bench, count: int, users: int, files: int = 1) -> None:
    """Append paid order lines; those of an invoice are of one user."""
    lake.put("orders", ORDER, count, key=f"pmod(hash(n div 3), {users})", files=files)


def drop_catalog(spark: SparkSession) -> None:
    """Forget the tables of another lake."""
    for layer in ("bronze", "silver", "gold", "gold_build", "cut_gold_build"):
        spark.sql(f"DROP DATABASE IF EXISTS {layer} CASCADE")


if __name__ == "__main__":
    typer.run(main)
