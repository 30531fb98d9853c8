"""Measures what the roles of the SQL endpoint cost for each statement.

    python -m benchmarks.roles [--times 200]

An owner's statements are not checked, and a reader's are. Both run the same statements in turn, on
one connection each, and `explain` leaves out the time of Spark's tasks. It prints the median
milliseconds of each, and the difference.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.silver import with_passwords
from gold.catalog import register
from gold.sql_client import connect
from lake.tables.lake import Lake
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import print_rows
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user, generated_password

WIDE = ", ".join(f"sum(case when id = {n} then points end) as c{n}" for n in range(200))
STATEMENTS = {
    "select 1": "select 1",
    "explain, 1 table": "explain select tier, sum(points) from gold.points group by tier",
    "explain, 5 joins": "explain select * from gold.points join gold.points b using (id) "
    "join gold.points c using (id) join gold.points d using (id) join gold.points e using (id)",
    "explain, 200 columns": f"explain select {WIDE} from gold.points",
}


def main(
    times: Annotated[int, typer.Option(help="How often each statement runs.")] = 200,
) -> None:
    """Print the milliseconds of an owner's and of a reader's statements."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = with_passwords(home, sql_user="owner")
        password = generated_password(home / "password")
        add_user(settings, "owner", password, "owner")
        add_user(settings, "reader", password, "reader")
        spark = build_session(settings, "benchmark")
        register(spark, Lake(settings))
        spark.sql(
            "create table gold.points using delta as "
            "select id, id * 10 as points, concat('t', id % 3) as tier from range(1000)"
        )
        serving = start_endpoint(spark, settings)
        users = [connect(settings.model_copy(update={"sql_user": u})) for u in ("owner", "reader")]
        rows = []
        for name, sql in STATEMENTS.items():
            taken: tuple[list[float], list[float]] = ([], [])
            for number in range(times):  # what the first leaves in caches helps each equally often
                for i in (0, 1) if number % 2 else (1, 0):
                    taken[i].append(milliseconds(users[i], sql))
            owner, reader = (statistics.median(each[times // 4 :]) for each in taken)
            rows.append((name, f"{owner:.1f}", f"{reader:.1f}", f"{reader - owner:.1f}"))
        print_rows(("statement", "owner (ms)", "reader (ms)", "cost (ms)"), rows, "table")
        for each in users:
            each.close()
        serving.stop()
        spark.stop()


def milliseconds(connection: Any, sql: str) -> float:
    """How long a statement takes, with its rows."""
    with connection.cursor() as cursor:
        started = time.perf_counter()
        cursor.execute(sql)
        cursor.fetchall()
        return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    typer.run(main)
