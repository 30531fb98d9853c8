"""Measures what a batch of an interval join costs, by the number of events that came before.

    python -m benchmarks.joins [--events 100000 --events 1000000]

Each topic has that many events, one a second, of a tenth as many keys; a partner comes 20 seconds
after its event. These batches follow, in turns on the lakes of all sizes:

`new`: 50 events and their partners, later than all others.
`late`: the same, and one event and its partner are from the middle of the time.
`hot 2000`, `hot 10000`: that many events of one key, half of them partners, one a second. An event
has 61 partners, because the interval is a minute.

Prints the median seconds in which silver updates the join. With `--everywhere`, also without the
condition that lets it read only events near those of the batch.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.settings.settings import load_settings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.topics.topic_file import load_topics
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import print_rows
from pulsar_spark.schema import ENVELOPE
from silver.materialized import KeptView
from silver.refine import refine

DECLARED = """
[topics.calls]
kind = "events"
key = ["id"]
event_time = "at"
fields = { id = "long", who = "long", at = "timestamp_ms" }

[topics.answers]
kind = "events"
key = ["id"]
event_time = "at"
fields = { id = "long", who = "long", at = "timestamp_ms" }

[joins.answered]
left = "calls"
right = "answers"
on = { who = "who" }
within = { after = "1 minute" }
"""
BEGIN = 1_700_000_000_000
EVENT = "to_json(named_struct('id', {id}, 'who', {who}, 'at', {at}))"
KINDS = ("new", "late", "hot 2000", "hot 10000")
ROUNDS = 3

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class JoinBench:
    """A lake without a broker, with two topics and their join."""

    def __init__(self, spark: SparkSession, home: Path, events: int) -> None:
        file = home / "topics.toml"
        file.write_text(DECLARED)
        self.spark = spark
        self.lake = Lake(load_settings(home=home), load_topics(file))
        self.events = events
        self.ids = 0
        self.entries = 0
        for name in self.lake.topics.topics:
            self.lake.table(bronze_table(name)).create()

    def put(self, count: int, who: str, at: str, offset: int = 20_000) -> None:
        """Append events and their partners to bronze; `who` and `at` are SQL of their number n."""
        for topic, later in (("calls", 0), ("answers", offset)):
            numbers = self.spark.range(0, count, 1, max(1, count // 500_000)).toDF("n")
            event = EVENT.format(id=f"n + {self.ids}", who=who, at=f"{BEGIN} + {later} + {at}")
            known: dict[str, Any] = {
                "topic": F.lit(topic),
                "partition": F.lit(0),
                "ledger": F.lit(1),
                "entry": F.col("n") + self.entries,
                "batch_index": F.lit(0),
                "payload": F.expr(event).cast("binary"),
                "publish_time": F.current_timestamp(),
                "properties": F.expr("cast(map() as map<string,string>)"),
            }
            rows = numbers.select(
                *(known.get(c.name, F.lit(None)).cast(c.type).alias(c.name) for c in ENVELOPE)
            )
            path = self.lake.table(bronze_table(topic)).path
            rows.write.format("delta").mode("append").save(path)
        self.ids += count
        self.entries += count

    def fill(self) -> None:
        """Append the events that came before."""
        self.put(self.events, f"n % {self.events // 10}", "n * 1000")

    def batch(self, kind: str) -> None:
        """Append the events of a batch."""
        end = self.ids
        if kind.startswith("hot"):
            self.put(int(kind.split()[1]) // 2, "-1", f"({end} + n) * 1000")
            return
        self.put(50, "n", f"({end} + n) * 1000")
        if kind == "late":
            self.put(1, "7", f"{self.events // 2} * 1000")

    def refine(self) -> float:
        """Refine what was appended, and return the seconds in which the join was updated."""
        took, refresh = [], KeptView.refresh

        def timed(view: KeptView, *given: Any) -> None:
            begun = time.monotonic()
            refresh(view, *given)
            took.append(time.monotonic() - begun)

        with mock.patch.object(KeptView, "refresh", timed):
            await_streams(refine(self.spark, self.lake, available_now=True))
        return sum(took)


@app.command()
def main(
    events: Annotated[list[int] | None, typer.Option(help="Events of each topic.")] = None,
    *,
    everywhere: Annotated[bool, typer.Option(help="Also read all events in each batch.")] = False,
) -> None:
    """Measure the batches by the number of events."""
    sizes = events or [100_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        lakes = list(_lakes(Path(folder), sizes))
        for bench in lakes:
            bench.fill()
            print(f"{bench.events} events: filled, join in {bench.refine():.1f} s", flush=True)
        print_rows(["events", "batch", "seconds"], _measured(lakes, everywhere=everywhere))


def _lakes(folder: Path, sizes: list[int]) -> Iterator[JoinBench]:
    spark = build_session(load_settings(home=folder), "benchmark-joins")
    for size in sizes:
        home = folder / str(size)
        home.mkdir()
        yield JoinBench(spark, home, size)


def _measured(lakes: list[JoinBench], *, everywhere: bool) -> list[list[object]]:
    took: dict[tuple[int, str], list[float]] = {}
    made = KeptView.__init__
    ways = {"": made, " (all events read)": _everywhere(made)} if everywhere else {"": made}
    for _ in range(ROUNDS):
        for way, init in ways.items():
            with mock.patch.object(KeptView, "__init__", init):
                for kind in KINDS:
                    for bench in lakes:
                        bench.batch(kind)
                        seconds = bench.refine()
                        took.setdefault((bench.events, kind + way), []).append(seconds)
                        print(f"{bench.events} {kind}{way}: {seconds:.2f} s", flush=True)
    return [[size, kind, round(statistics.median(t), 2)] for (size, kind), t in took.items()]


def _everywhere(made: Any) -> Any:
    def init(view: Any, *given: Any) -> None:
        made(view, *given)
        view._reach = None  # noqa: SLF001 - a way that the product does not offer

    return init


if __name__ == "__main__":
    app()
