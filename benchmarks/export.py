"""Measures how fast a sink writes to PostgreSQL, compared with a bare COPY of the same rows.

    LAKEHOUSE_BENCHMARK_DB=postgresql://... python -m benchmarks.export [--rows 1000000]

The variable holds the address of an empty database. Prints rows per second of a bare COPY into an
unindexed table, of the first copy of a table of ten columns, and of versions that change 10,000 and
100,000 rows: 7 of 10 are updates, 2 inserts and 1 a delete. One process runs all of them. Writing
the Delta table is not measured.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import psycopg
import pyarrow as pa
import typer
from deltalake import DeltaTable, write_deltalake

from lake.observe.logs import configure_logs
from lake.settings.settings import load_settings
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED
from lake.topics.sink import Export
from lake.topics.topic_file import TopicFile
from lakehouse.runtime.terminal import print_rows
from lakehouse.sinks.export import Exporter
from lakehouse.sinks.postgres.values import as_copy

VARIABLE = "LAKEHOUSE_BENCHMARK_DB"
TABLE = "public.lakehouse_benchmark"
CHANGES = (10_000, 100_000)


def generated(keys: list[int], rng: random.Random) -> pa.Table:
    """Rows of ten columns: numbers, texts, an amount, times and NULLs."""
    count = len(keys)
    day = 86_400_000_000
    times = pa.array([rng.randrange(20_000 * day) for _ in keys], pa.int64())
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "account": pa.array([rng.randrange(100_000) for _ in keys], pa.int64()),
            "name": pa.array([f"Name {rng.randrange(10**9)}" for _ in keys]),
            "email": pa.array([f"user{rng.randrange(10**9)}@example.org" for _ in keys]),
            "note": pa.array([None if n % 3 else "a note\twith a tab" for n in range(count)]),
            "kind": pa.array([rng.choice(["credit", "debit"]) for _ in keys]),
            "amount": pa.array(
                [Decimal(rng.randrange(10**8)) / 100 for _ in keys], pa.decimal128(20, 2)
            ),
            "score": pa.array([rng.random() for _ in keys], pa.float64()),
            "is_open": pa.array([rng.random() < 0.5 for _ in keys], pa.bool_()),
            "changed_at": times.cast(pa.timestamp("us", "UTC")),
        }
    )


def timed(work: Callable[[], object]) -> float:
    """How many seconds a function takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def bare(address: str, rows: pa.Table) -> None:
    """COPY rows into a new table without a key."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute(
            "CREATE TABLE bare (id bigint, account bigint, name text, email text, note text, "
            "kind text, amount numeric(20,2), score double precision, is_open boolean, "
            "changed_at timestamptz)"
        )
        with connection.cursor() as cursor, cursor.copy("COPY bare FROM STDIN") as copy:
            for start in range(0, rows.num_rows, 50_000):
                copy.write(as_copy(rows.slice(start, 50_000)))


def change(path: str, known: list[int], count: int, rng: random.Random) -> list[int]:
    """Change rows in two versions, and return the keys that are there afterwards."""
    touched = rng.sample(known, count * 8 // 10)
    updated, gone = touched[: count * 7 // 10], touched[count * 7 // 10 :]
    new = list(range(max(known) + 1, max(known) + 1 + count * 2 // 10))
    rows = generated(updated + new, rng)
    merge = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(path).delete(f"id IN ({', '.join(map(str, gone))})")
    left = {*known, *new} - {*gone}
    return sorted(left)


def main(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the table.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Versions of each size.")] = 3,
) -> None:
    """Run the benchmark and print the figures."""
    configure_logs("text")
    address, rng = os.environ[VARIABLE], random.Random(1)  # noqa: S311 - no secret
    sink = Export.model_validate(
        {"name": "b", "from": "gold.source", "table": TABLE, "key": ["id"], "url_env": VARIABLE}
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(home=Path(folder))
        lake = Lake(settings, TopicFile(topics={}, export={"b": sink}))
        path = settings.table_path("gold", "source")
        keys = list(range(rows))
        whole = generated(keys, rng)
        write_deltalake(path, whole, configuration=CHANGE_FEED)
        exporter = Exporter(lake, sink)
        exporter.open()
        found = [("bare COPY", rows, rows / timed(lambda: bare(address, whole)))]
        found.append(("first copy", rows, rows / timed(exporter.export)))
        for count in CHANGES:
            if count > rows // 2:
                continue
            seconds = 0.0
            for _ in range(rounds):
                keys = change(path, keys, count, rng)
                seconds += timed(exporter.export)
            found.append(("changes", count, count * rounds / seconds))
        exporter.close()
    print_rows(("what", "rows", "rows/s"), [(what, n, round(speed)) for what, n, speed in found])


if __name__ == "__main__":
    typer.run(main)
