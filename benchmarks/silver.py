"""Measures the cost of silver, how the cost grows with the state, and how fresh silver is.

    python -m benchmarks.silver cost [--users 117178 --users 1000000 --users 10000000]
    python -m benchmarks.silver history [--orders 500000 --orders 2000000 --orders 8000000]
    python -m benchmarks.silver backfill [--orders 2000000] [--users 1000000]
    python -m benchmarks.silver freshness [--rate 1000] [--seconds 300] [--users 1000000]
    python -m benchmarks.silver week [--batches 288]
    python -m benchmarks.silver lookups [--batches 5000] [--keys 1000]

`cost`: the seconds of a batch of 1,000 orders and of a batch of 1,000 changed users, by the size of
the state, and as ratios to the smallest size. The batches of all sizes take turns, so that a slow
minute of the machine affects all sizes alike.
`history`: the same by the number of earlier orders, for new orders and for ten orders sent again.
`backfill`: the orders per second of one query that finds all orders in bronze.
`freshness`: the seconds from the broker's publish time until the commit with the row can be read,
while orders are published at an even rate. Also the duration of batches, and the number of files at
the end.
`week`: whether batches stay short during seven days of small batches. Each day ends with the work
that the job does once a day.
`lookups`: the memory of the process and the time of a lookup while the same keys of a changelog
change in each batch. Runs without Spark.
"""

import contextlib
import datetime as dt
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze.ingest import ingest
from bronze.upkeep import DAY, DONE
from gold.catalog import register
from gold.sql_client import connect
from lake.observe.logs import configure_logs
from lake.settings.settings import LakeSettings, load_settings
from lake.streams.job import await_streams
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.tables.spec import CHANGE_FEED, TableSpec, bronze_table
from lake.topics.topic_file import TopicFile, load_topics
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.broker import start_broker
from lakehouse.runtime.ports import free_port
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import print_rows
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.users import add_user, generated_password
from pulsar_spark.schema import ENVELOPE, RAW
from silver.contract.tables import silver_tables
from silver.enrichment.state_cache import StateCache
from silver.refine import QUERY, refine

ITEMS = 1_000
SIZES = [117_178, 1_000_000, 10_000_000]
HISTORIES = [500_000, 2_000_000, 8_000_000]
WARM_UP = 4
QUERY_OF_READERS = "SELECT item_id, sum(price) FROM silver.enriched_orders GROUP BY item_id"

USER = """to_json(named_struct('id', {id}, 'firstName', 'Ada', 'lastName', concat('v', {n}),
  'emailAddress', concat('user', {id}, '@example.org'), 'createdAt', 1700000000000 + {n},
  'deletedAt', -1, 'mergedAt', -1, 'parentUserId', -1))"""
ITEM = """to_json(named_struct('id', {id}, 'createdAt', 1700000000000, 'adjective', 'old',
  'category', 'tea', 'modifier', 'green', 'name', concat('tea ', {id}), 'price', 3.25))"""
ORDER = """to_json(named_struct('invoiceId', {n}, 'lineItemId', 1, 'userId', {id},
  'itemId', {n} % 1000, 'itemName', 'tea', 'itemCategory', 'tea', 'price', 3.25,
  'createdAt', 1700000000000 + {n}, 'paidAt', -1))"""
RESENT = """to_json(named_struct('invoiceId', {id}, 'lineItemId', 1, 'userId', {id} * 7919 % 117178,
  'itemId', {id} % 1000, 'itemName', 'tea', 'itemCategory', 'tea', 'price', 4.25,
  'createdAt', 1700000000000 + {id}, 'paidAt', 1700000000000 + {n}))"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Bench:
    """A lake without a broker, whose messages are written directly into bronze."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        own = {"silver_trigger": "0 seconds", "sql_port": free_port()}
        self.settings = load_settings(home=home, **own)
        self.topics: TopicFile = load_topics(self.settings.topics)
        self.lake = Lake(self.settings, self.topics)
        self.written = 0
        self.first_order = 0

    def create(self) -> "Bench":
        """Create the bronze tables, for benchmarks without a bronze stream. Returns the lake."""
        for name in self.topics.topics:
            self.lake.table(bronze_table(name)).create()
        return self

    def fill(self, users: int) -> None:
        """Append that many users, and all items, to bronze."""
        self.put("users", USER, users, key=f"n - {self.written}", files=max(1, users // 500_000))
        self.put("items", ITEM, ITEMS, key=f"n - {self.written}")

    def put(self, topic: str, payload: str, count: int, key: str = "n", files: int = 1) -> None:
        """Append messages with Spark.

        Args:
            topic: the topic.
            payload: SQL for the payload, with `{n}` for the running number and `{id}` for the key.
            count: number of messages.
            key: SQL for the key, in which `n` is the running number of the message.
            files: number of files to write.
        """
        begin = self.written
        self.written += count
        numbers = self.spark.range(begin, begin + count, 1, files).toDF("n")
        envelope = {
            "topic": F.lit(self.settings.full_topic(topic)),
            "partition": F.lit(0),
            "ledger": F.lit(1).cast("bigint"),
            "entry": F.col("n"),
            "batch_index": F.lit(0),
            "key": F.expr(key).cast("string"),
            "payload": F.expr(payload.format(id=f"({key})", n="n")).cast("binary"),
            "event_time": F.lit(None).cast("timestamp"),
            "publish_time": F.current_timestamp(),
            "order_time": F.lit(None).cast("timestamp"),
            "properties": F.expr("cast(map() as map<string,string>)"),
            "schema_version": F.lit(None).cast("bigint"),
            **{c.name: F.lit(None).cast(c.type) for c in ENVELOPE if c.name in RAW},
        }
        rows = numbers.withColumns(envelope).select([column.name for column in ENVELOPE])
        rows.write.format("delta").mode("append").save(self.path("bronze", topic))

    def put_directly(self, orders: list[dict[str, Any]], users: list[dict[str, Any]]) -> None:
        """Append a few messages without Spark, which would take longer."""
        if users:
            self._append("users", users)
        self._append("orders", orders)

    def _append(self, topic: str, records: list[dict[str, Any]]) -> None:
        now, begin = dt.datetime.now(dt.timezone.utc), self.written
        self.written += len(records)
        place = {"topic": self.settings.full_topic(topic), "partition": 0, "ledger": 2}
        rest = {"batch_index": 0, "publish_time": now, "properties": []}
        rows = [
            {**place, **rest, "entry": begin + n, "payload": json.dumps(record).encode()}
            for n, record in enumerate(records)
        ]
        self.lake.table(bronze_table(topic)).arrow.append(rows)

    def end_day(self) -> None:
        """Make the query believe that its daily work was last done a day earlier than it was."""
        file = Path(self.settings.checkpoint_path(QUERY)) / DONE
        then = file.stat().st_mtime - DAY
        os.utime(file, (then, then))

    def size(self) -> tuple[int, int, int, str]:
        """Size of silver: current data files, all data files, log files, and megabytes."""
        tables = [self.lake.table(table).path for table in silver_tables(self.topics)]
        live = sum(len(DeltaTable(path).file_uris()) for path in tables)
        every = [file for path in tables for file in Path(path).rglob("*") if file.is_file()]
        logs = sum("_delta_log" in file.parts for file in every)
        megabytes = sum(file.stat().st_size for file in every) / 1e6
        return live, len(every) - logs, logs, f"{megabytes:.0f}"

    def path(self, layer: str, name: str) -> str:
        """The path of a table."""
        return self.settings.table_path(layer, name)

    def refine(self) -> float:
        """The seconds that silver takes to catch up, by the query's own progress reports."""
        [running] = refine(self.spark, self.lake, available_now=True)
        await_streams([running])
        return sum(batch_seconds(running))

    def start(self) -> Stream:
        """Start silver as a stream."""
        [running] = refine(self.spark, self.lake)
        return running


Put = Callable[[Bench, int], None]


def batch_seconds(running: Stream) -> list[float]:
    """The seconds of each recent batch of a query that had rows."""
    progress = [json.loads(p.json) for p in running.query.recentProgress]
    return [p["durationMs"]["triggerExecution"] / 1000 for p in progress if p["numInputRows"]]


def next_batch(running: Stream, put: Callable[[], None]) -> float:
    """The seconds of the batch that processes what `put` appends."""
    query = running.query
    put()
    query.processAllAvailable()
    return batch_seconds(running)[-1]


@contextlib.contextmanager
def session(**settings: Any) -> Iterator[tuple[SparkSession, Path]]:
    """A Spark session with some settings, and a folder that is deleted at the end."""
    configure_logs()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        spark = build_session(load_settings(home=Path(folder), **settings), "benchmark-silver")
        stack.callback(spark.stop)
        yield spark, Path(folder)


@app.command()
def cost(
    users: Annotated[list[int], typer.Option(help="Sizes of the state.")] = SIZES,
    rounds: Annotated[int, typer.Option(help="Measured batches of each kind.")] = 7,
) -> None:
    """Measure the cost of a batch by the size of the state."""
    kinds: dict[str, Put] = {
        "1,000 orders": lambda lake, size: lake.put(
            "orders", ORDER, 1000, key=f"n * 7919 % {size}"
        ),
        "1,000 changes": lambda lake, size: lake.put("users", USER, 1000, key=f"n * 7919 % {size}"),
    }
    compare("users", users, Bench.fill, kinds, rounds)


@app.command()
def history(
    orders: Annotated[list[int], typer.Option(help="Orders that exist before.")] = HISTORIES,
    rounds: Annotated[int, typer.Option(help="Measured batches of each kind.")] = 7,
) -> None:
    """Measure the cost of a batch by the number of earlier orders, also for orders sent again."""

    def fill(lake: Bench, size: int) -> None:
        lake.fill(SIZES[0])
        lake.first_order = lake.written
        lake.put("orders", ORDER, size, key=f"n * 7919 % {SIZES[0]}", files=max(1, size // 250_000))

    kinds: dict[str, Put] = {
        "1,000 new": lambda lake, _: lake.put("orders", ORDER, 1000, key=f"n * 7919 % {SIZES[0]}"),
        "10 again": lambda lake, size: lake.put(
            "orders", RESENT, 10, key=f"{lake.first_order} + n * 7919 % {size}"
        ),
    }
    compare("orders", orders, fill, kinds, rounds)


def compare(what: str, sizes: list[int], fill: Put, kinds: dict[str, Put], rounds: int) -> None:
    """Measure batches of several kinds in lakes of several sizes, and print how the times grow.

    Args:
        what: what the sizes count; the header of their column.
        sizes: the sizes of the lakes. The others are compared with the first.
        fill: fills bronze for a lake of a size.
        kinds: by name, a function that puts one batch of that kind into bronze.
        rounds: number of measured batches of each kind.
    """
    with session() as (spark, folder):
        lakes = {size: Bench(spark, folder / str(size)).create() for size in sizes}
        filled = {}
        for size, lake in lakes.items():
            fill(lake, size)
            filled[size] = lake.refine()
        took: dict[tuple[str, int], list[float]] = {(k, s): [] for k in kinds for s in sizes}
        streams = {size: lake.start() for size, lake in lakes.items()}
        for turn in range(WARM_UP + rounds):
            for kind, put in kinds.items():
                for size, lake in lakes.items():
                    seconds = next_batch(streams[size], partial(put, lake, size))
                    if turn >= WARM_UP:
                        took[kind, size].append(seconds)
        for running in streams.values():
            running.stop()
        rows = []
        for size in sizes:
            cells = [f"{size:,}", f"{filled[size]:.0f}"]
            for kind in kinds:
                median = statistics.median(took[kind, size])
                ratio = median / statistics.median(took[kind, sizes[0]])
                cells += [f"{median:.2f}", f"{ratio:.2f}"]
            rows.append(tuple(cells))
        print_rows((what, "first fill s", *(c for k in kinds for c in (f"{k} s", "ratio"))), rows)


@app.command()
def backfill(
    orders: Annotated[int, typer.Option(help="Order lines in bronze.")] = 2_000_000,
    users: Annotated[int, typer.Option(help="Size of the state.")] = SIZES[0],
) -> None:
    """Measure orders a second when silver finds a full bronze table, in a JVM that just started."""
    with session() as (spark, folder):
        lake = Bench(spark, folder).create()
        lake.fill(users)
        lake.put("orders", ORDER, 1000, key=f"n * 7919 % {users}")
        lake.refine()
        lake.put("orders", ORDER, orders, key=f"n * 7919 % {users}", files=8)
        took = lake.refine()
        rows = [(f"{users:,}", orders, f"{took:.1f}", f"{orders / took:,.0f}")]
        print_rows(("users", "orders", "seconds", "orders/s"), rows)


@app.command()
def week(
    batches: Annotated[
        int, typer.Option(help="Batches of a day; 288 is one every five minutes.")
    ] = 288,
    orders: Annotated[int, typer.Option(help="Orders per batch.")] = 100,
    users: Annotated[int, typer.Option(help="Size of the state.")] = SIZES[0],
) -> None:
    """Measure seven days of small batches, of which every twelfth also changes ten users."""
    rows, made = [], 0
    with session() as (spark, folder):
        lake = Bench(spark, folder).create()
        lake.fill(users)
        running = lake.start()
        running.query.processAllAvailable()
        for day in range(1, 8):
            took: dict[bool, list[float]] = {False: [], True: []}
            for batch in range(batches):
                new = [order(made + n, users) for n in range(orders)]
                made += orders
                changed = [user((made + n) * 7919 % users, made) for n in range(10)]
                changed = changed if batch % 12 == 0 else []
                put = partial(lake.put_directly, new, changed)
                took[bool(changed)].append(next_batch(running, put))
            lake.end_day()
            rows.append(
                (day, *(f"{statistics.median(x):.2f}" for x in took.values()), *lake.size())
            )
        running.stop()
    header = ("day", "batch s", "with changes s", "live files", "files", "log files", "MB")
    print_rows(header, rows)


@app.command()
def lookups(
    batches: Annotated[
        int, typer.Option(help="Number of batches; each makes a version of the state.")
    ] = 5_000,
    keys: Annotated[int, typer.Option(help="Rows of the state; all change in each batch.")] = 1_000,
) -> None:
    """Measure memory and time of lookups in a changelog whose keys all change in each batch."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(home=Path(folder))
        values = [f"value{n}" for n in range(8)]
        spec = TableSpec("silver", "hot", "", ())  # the table is created by its path, without Spark
        hot, schema = Lake(settings).table(spec), [("id", pa.int64())]
        schema += [(name, pa.string()) for name in values]
        write_deltalake(hot.path, pa.schema(schema).empty_table(), configuration=CHANGE_FEED)
        state, table = hot.log(), hot.arrow
        cache = StateCache("id", values, Path(folder))
        wanted, took, rows = pa.array(range(keys)), list[float](), []
        for batch in range(1, batches + 1):
            text = pa.array([f"of batch {batch}: {key}" for key in range(keys)])
            new = pa.table({"id": wanted, **dict.fromkeys(values, text)})
            merge = state.merge(new, "s.id = t.id", "s", "t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
            table.refresh()
            begun = time.perf_counter()
            found = cache.find(table, wanted)
            took.append((time.perf_counter() - begun) * 1000)
            if found.num_rows != keys:
                text_ = f"{found.num_rows} rows of {keys} keys were found in {hot.path}"
                raise RuntimeError(text_)
            if batch % max(batches // 10, 1) == 0 and (kept := cache.kept):
                milliseconds = f"{statistics.median(took):.1f}", f"{max(took):.1f}"
                rows.append((batch, resident(), kept.rows, kept.parts, *milliseconds))
                took.clear()
        print_rows(("batches", "resident MB", "rows kept", "parts", "lookup ms", "most"), rows)


def resident() -> int:
    """The resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def user(n: int, version: int) -> dict[str, Any]:
    """The message for a version of user `n`."""
    absent = dict.fromkeys(("deletedAt", "mergedAt", "parentUserId"), -1)
    name = {"firstName": "Ada", "lastName": f"v{version}", "emailAddress": f"user{n}@example.org"}
    return {"id": n, **name, "createdAt": 1_700_000_000_000 + version, **absent}


def order(n: int, users: int) -> dict[str, Any]:
    """Order `n`, of one line. Consecutive orders have different users in a scattered order."""
    return {
        "invoiceId": n,
        "lineItemId": 1,
        "userId": n * 7919 % users,
        "itemId": n % ITEMS,
        "itemName": "tea",
        "itemCategory": "tea",
        "price": 3.25,
        "createdAt": 1_700_000_000_000 + n,
        "paidAt": -1,
    }


def send(settings: LakeSettings, rate: int, seconds: int, users: int, first: int = 0) -> None:
    """Publish orders at an even rate in slices of 20 ms, starting with number `first`."""
    client = settings.connection.client()
    producer = client.create_producer(settings.full_topic("orders"), block_if_queue_full=True)
    begun, sent = time.monotonic(), 0
    while sent < rate * seconds:
        due = int((time.monotonic() - begun) * rate)
        for n in range(sent, min(due, rate * seconds)):
            message = json.dumps(order(first + n, users)).encode()
            producer.send_async(message, None, partition_key=str(first + n))
        sent = min(due, rate * seconds)
        time.sleep(0.02)
    producer.flush()
    client.close()


def watch_commits(path: str, until: Callable[[], bool]) -> dict[int, float]:
    """Watch a table until `until` holds. Returns the commit time of each batch.

    The times are in epoch seconds by `arrived_batch`.
    """
    seen: dict[int, float] = {}
    log = Path(path) / "_delta_log"
    known: set[str] = set()
    last = False
    while not last:
        last = until()  # if so, read the log once more
        for file in sorted(log.glob("*.json")):
            if file.name not in known:
                known.add(file.name)
                for line in file.read_text().splitlines():
                    stats = json.loads(json.loads(line).get("add", {}).get("stats", "{}"))
                    batch = stats.get("maxValues", {}).get("arrived_batch")
                    if batch is not None:
                        seen.setdefault(batch, file.stat().st_mtime)
        time.sleep(0.2)
    return seen


@app.command()
def freshness(
    rate: Annotated[int, typer.Option(help="Orders per second.")] = 1000,
    seconds: Annotated[int, typer.Option(help="Measured seconds.")] = 300,
    warm_up: Annotated[int, typer.Option(help="Warm-up seconds, in which Java compiles.")] = 60,
    users: Annotated[int, typer.Option(help="Size of the state.")] = SIZES[0],
    readers: Annotated[int, typer.Option(help="Users who query the table all the time.")] = 0,
) -> None:
    """Measure the time from published to readable in silver.enriched_orders, in a running lake."""
    served: dict[str, Any] = {"sql_authentication": "password"} if readers else {}
    with session(**served) as (spark, folder), contextlib.ExitStack() as stack:
        lake, live, running = stack.enter_context(streaming(spark, folder, users))
        if readers:
            answered = stack.enter_context(reading(spark, folder, readers))
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(live.settings, rate, warm_up + seconds, users)
        )
        sender.start()
        path = lake.path("silver", "enriched_orders")

        def done() -> bool:
            return not sender.is_alive() and DeltaTable(
                path
            ).to_pyarrow_dataset().count_rows() == rate * (warm_up + seconds)

        commits = watch_commits(path, done)
        batches = {each.query.name: batch_seconds(each) for each in running}
        if readers:
            print_rows(("readers", "statements"), [(readers, answered.value)])
        for each in running:
            each.stop()
        report(spark.read.format("delta").load(path), commits, warm_up)
        rows = [(n, len(x), f"{statistics.median(x[-50:]):.2f}") for n, x in batches.items() if x]
        print_rows(("query", "batches", "median s"), rows)
        files = {
            n: len(DeltaTable(lake.path(*n.split("."))).file_uris())
            for n in ("bronze.orders", "silver.enriched_orders")
        }
        print_rows(("table", "files"), list(files.items()))


@contextlib.contextmanager
def streaming(
    spark: SparkSession, home: Path, users: int
) -> Iterator[tuple[Bench, Lake, list[Stream]]]:
    """Run a broker, bronze and silver, with that many users in silver.

    Yields:
        The lake for direct writes, the lake that the broker fills, and the streams, of which the
        last is silver's.
    """
    bench = Bench(spark, home)
    lake = Lake(load_settings(home=home, sql_port=free_port()), bench.topics)
    broker = start_broker(lake.settings)
    try:
        create_topics(lake)
        running = ingest(spark, lake)
        bench.fill(users)
        running += refine(spark, lake)
        running[-1].query.processAllAvailable()
        yield bench, lake, running
    finally:
        broker.stop()


def with_passwords(home: Path, **own: Any) -> LakeSettings:
    """Settings of an SQL endpoint with passwords, and of clients that use the generated one."""
    file = home / "password"
    generated_password(file)
    return load_settings(
        home=home,
        sql_port=free_port(),
        sql_authentication="password",
        sql_password_file=file,
        **own,
    )


@contextlib.contextmanager
def reading(spark: SparkSession, home: Path, count: int) -> Iterator[Any]:
    """Serve SQL, and let readers query `silver.enriched_orders` one statement after another.

    Yields:
        The number of statements answered so far, as `value`.
    """
    roles = {"reader": {"tables": ["silver.enriched_orders"]}}
    settings = with_passwords(home, sql_roles=roles)
    for n in range(count):
        add_user(settings, f"reader{n}", generated_password(home / "password"), "reader")
    register(spark, Lake(settings))
    serving = start_endpoint(spark, settings)
    processes = multiprocessing.get_context("spawn")
    answered = processes.Value("q", 0)
    client = processes.Process(target=query, args=(settings, count, answered), daemon=True)
    client.start()
    try:
        yield answered
    finally:
        client.kill()
        serving.stop()


def query(settings: LakeSettings, count: int, answered: Any) -> None:
    """Run the readers' statements, each on a connection of its own, until the process is killed."""

    def read(number: int) -> None:
        reader = settings.model_copy(update={"sql_user": f"reader{number}"})
        with connect(reader) as connection, connection.cursor() as cursor:
            while True:
                cursor.execute(QUERY_OF_READERS)
                cursor.fetchall()
                with answered.get_lock():
                    answered.value += 1

    with ThreadPoolExecutor(count) as pool:
        for found in [pool.submit(read, number) for number in range(count)]:
            found.result()


def report(rows: DataFrame, commits: dict[int, float], warm_up: int) -> None:
    """Print the percentiles of freshness for orders published after the warm-up."""
    found = pa.Table.from_pandas(rows.select("arrived_batch", "publish_time").toPandas())
    published = pc.cast(found["publish_time"], pa.timestamp("us", "UTC")).to_pylist()
    begin = min(published) + dt.timedelta(seconds=warm_up)
    ages = sorted(
        commits[batch] - at.timestamp()
        for batch, at in zip(found["arrived_batch"].to_pylist(), published, strict=True)
        if at >= begin
    )
    cells = [f"{ages[int(len(ages) * share)]:.2f}" for share in (0.5, 0.95, 0.99)]
    header = ("orders", "p50 s", "p95 s", "p99 s", "max s")
    print_rows(header, [(len(ages), *cells, f"{ages[-1]:.2f}")])


if __name__ == "__main__":
    app()
