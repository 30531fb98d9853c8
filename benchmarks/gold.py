"""What gold costs, by the size of silver and by what changed.

    python -m benchmarks.gold [--lines 50000 --lines 500000] [--changes 1000]

For each size: seconds of the models of the first build, of one after so many new order lines and as
many changed users, and of a full refresh; and the last as a ratio to the second. Tests of dbt are
left out of the seconds, as they read whole tables by intent.
"""

import contextlib
from typing import Annotated

import typer

from benchmarks.silver import ORDER, USER, Bench, session
from gold.build import BuildResult, build_gold
from gold.catalog import register
from lakehouse.console import print_rows
from lakehouse.sql_endpoint import start_endpoint

SIZES = [50_000, 500_000]
USERS = 20_000
PAID_ORDER = ORDER.replace("'paidAt', -1", "'paidAt', 1700000000000 + {n}")


def main(
    lines: Annotated[list[int], typer.Option(help="Order lines in silver.")] = SIZES,
    changes: Annotated[int, typer.Option(help="New lines, and changed users.")] = 1_000,
) -> None:
    """Print the seconds of the builds."""
    rows = []
    with session() as (spark, folder):
        for size in lines:
            lake = Bench(spark, folder / str(size)).create()
            settings = lake.settings
            lake.fill(USERS)
            lake.put("orders", PAID_ORDER, size, key=f"n * 7919 % {USERS}", files=4)
            lake.refine()
            for layer in ("bronze", "silver", "gold", "gold_build", "cut"):
                spark.sql(f"DROP DATABASE IF EXISTS {layer} CASCADE")
            register(spark, settings, lake.topics)
            with contextlib.ExitStack() as stack:
                stack.callback(start_endpoint(spark, settings).stop)
                first = seconds(build_gold(settings))
                lake.put("orders", PAID_ORDER, changes, key=f"n * 7919 % {USERS}")
                lake.put("users", USER, changes, key=f"n * 7919 % {USERS}")
                lake.refine()
                later = seconds(build_gold(settings))
                full = seconds(build_gold(settings, full_refresh=True))
            cells = [f"{took:.1f}" for took in (first, later, full)]
            rows.append((f"{size:,}", *cells, f"{full / later:.1f}"))
    header = ("order lines", "first build s", f"{changes:,} changes s", "full refresh s", "ratio")
    print_rows(header, rows)


def seconds(build: BuildResult) -> float:
    """Of all models of a build."""
    return sum(model.seconds for model in build.models)


if __name__ == "__main__":
    typer.run(main)
