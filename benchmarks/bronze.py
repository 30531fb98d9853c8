"""Measures how fast bronze lands messages, compared with a bare Reader loop of pulsar-client.

    python -m benchmarks.bronze [--messages 2000000] [--partitions 1 --partitions 4] [--size 200]

Prints messages per second of the bare loop (one process, one partition after the other, nothing
kept), of landing in Delta, and the ratio of the two. Also prints the memory of the largest Python
worker, and the time of a trigger that finds nothing. Machines differ and are noisy, so compare the
ratios, which are measured in the same run.
"""

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pulsar
import typer
from pyspark.sql import SparkSession

from bronze.ingest import ingest
from lake.observe.logs import configure_logs
from lake.settings.settings import load_settings
from lake.streams.job import await_streams
from lake.tables.lake import Lake
from lake.topics.topic import Topic
from lake.topics.topic_file import TopicFile
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import start_broker
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import print_rows

IDLE_TRIGGERS = 30
PARTITIONS = [1, 4, 16]


def declare(name: str, partitions: int) -> TopicFile:
    """A topic file with one topic, whose payloads are never decoded."""
    fields: dict[str, Any] = {"id": "long"}
    topic = Topic(name=name, kind="events", key=["id"], partitions=partitions, fields=fields)
    return TopicFile(topics={name: topic})


def name_of(lake: Lake) -> str:
    """The full name of the only topic."""
    [topic] = lake.topics.topics
    return lake.settings.full_topic(topic)


def fill(lake: Lake, messages: int, size: int) -> None:
    """Publish batched, LZ4-compressed messages of `size` bytes of random text to all partitions."""
    create_topics(lake)
    client = lake.settings.connection.client()
    producer = client.create_producer(
        name_of(lake),
        batching_enabled=True,
        batching_max_messages=1000,
        block_if_queue_full=True,
        max_pending_messages=20_000,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for number in range(messages):
        payload = f"{number:012d}".encode() + os.urandom(size // 2 - 6).hex().encode()
        producer.send_async(payload, None, partition_key=str(number))
    producer.flush()
    client.close()


def read_raw(lake: Lake, messages: int) -> float:
    """The seconds that a bare Reader loop takes to read all messages.

    Raises:
        RuntimeError: the loop did not see all messages.
    """
    client = lake.settings.connection.client()
    begun = time.perf_counter()
    seen = 0
    for partition in client.get_topic_partitions(name_of(lake)):
        reader = client.create_reader(
            partition, pulsar.MessageId.earliest, receiver_queue_size=10_000
        )
        with contextlib.suppress(pulsar.Timeout):
            while seen < messages:
                reader.read_next(timeout_millis=300)
                seen += 1
        reader.close()
    took = time.perf_counter() - begun
    client.close()
    if seen != messages:
        text = f"the raw loop saw {seen} of {messages} messages"
        raise RuntimeError(text)
    return took


def land(spark: SparkSession, lake: Lake) -> float:
    """The seconds that a new query takes to land all messages, by its own progress reports."""
    [running] = ingest(spark, lake, available_now=True)
    query = running.query
    await_streams([running])
    batches = [json.loads(p.json)["durationMs"]["triggerExecution"] for p in query.recentProgress]
    return float(sum(batches)) / 1000


def idle(spark: SparkSession, lake: Lake) -> int:
    """The median milliseconds of a trigger that finds nothing new."""
    fast = lake.settings.model_copy(update={"trigger": "0 seconds"})
    [running] = ingest(spark, Lake(fast, lake.topics))
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    deadline = time.monotonic() + 60
    durations: list[int] = []
    while len(durations) < IDLE_TRIGGERS and time.monotonic() < deadline:
        time.sleep(0.5)
        progress = [json.loads(p.json) for p in running.query.recentProgress]
        durations = [p["durationMs"]["triggerExecution"] for p in progress if not p["numInputRows"]]
    running.stop()
    return sorted(durations)[len(durations) // 2]


@contextlib.contextmanager
def peak(measure: Callable[[], float], every: float = 0.2) -> Iterator[list[float]]:
    """Yield a list of one number: the largest value measured so far while the block runs.

    Args:
        measure: returns the current value.
        every: seconds between measurements.
    """
    largest, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(every):
            largest[0] = max(largest[0], measure())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield largest
    finally:
        stop.set()
        thread.join()


def largest_worker() -> float:
    """The resident memory of the largest Python worker, in MB."""
    largest = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if b"pyspark.daemon" in status.with_name("cmdline").read_bytes():
                size = status.read_text().split("VmRSS:")[1].split()[0]
                largest = max(largest, int(size) / 1024)
    return largest


def main(
    messages: Annotated[int, typer.Option(help="Messages to land.")] = 2_000_000,
    partitions: Annotated[list[int], typer.Option(help="Partitions of the topics.")] = PARTITIONS,
    size: Annotated[int, typer.Option(help="Bytes per message.")] = 200,
) -> None:
    """Measure a topic for each number of partitions, one after the other."""
    configure_logs()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = load_settings(home=Path(folder))
        stack.callback(start_broker(settings).stop)
        spark = build_session(settings, "benchmark-bronze")
        stack.callback(spark.stop)
        warm_up = Lake(settings, declare("warm_up", 2))
        fill(warm_up, 100_000, size)
        land(spark, warm_up)
        rows = []
        for count in partitions:
            lake = Lake(settings, declare(f"of_{count}", count))
            fill(lake, messages, size)
            raw = read_raw(lake, messages)
            with peak(largest_worker) as largest:
                took = land(spark, lake)
            rates = f"{messages / raw:,.0f}", f"{messages / took:,.0f}", f"{raw / took:.2f}"
            nothing = idle(spark, lake)
            rows.append((count, *rates, f"{largest[0]:.0f}", nothing))
        rate = ("raw Reader msg/s", "landed msg/s", "ratio")
        print_rows(("partitions", *rate, "worker MB", "idle trigger ms"), rows)


if __name__ == "__main__":
    typer.run(main)
