"""`lakehouse up`: run broker, imports, streams, sinks and SQL together until they are stopped."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import SparkSession
from rich.markup import escape
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from bronze.ingest import ingest, query_name
from gold.catalog import register
from lake.observe.health import HEALTH
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import last_commit
from lake.streams.job import await_streams
from lake.streams.supervisor import Stream
from lake.tables.lake import Lake
from lake.topics.topic_file import TopicFile
from lakehouse.imports.importer import run_imports
from lakehouse.messages.publish import create_topics
from lakehouse.runtime.address import console_url
from lakehouse.runtime.notify import READY, STOPPING, notify
from lakehouse.runtime.ports import require_free_port
from lakehouse.runtime.run import broker_and_spark
from lakehouse.runtime.terminal import err, step
from lakehouse.sinks.postgres.database import check_addresses
from lakehouse.sinks.running import check_sinks, declared, run_sinks
from lakehouse.sql.connect import PORT_SETTING, require_token, spark_connect
from lakehouse.sql.endpoint import answers, start_endpoint
from lakehouse.sql.guard import require_guard
from lakehouse.sql.reader import OFFER
from silver.part import outdated
from silver.rebuild import rebuild as rebuild_silver
from silver.refine import QUERY, refine

LANDING_SECONDS = 60
CATCHING_UP_SECONDS = 30


def up(lake: Lake, *, rebuild: bool = False) -> None:
    """Run everything until Ctrl-C or SIGTERM, then stop streams, SQL and broker in this order.

    Args:
        lake: the lake.
        rebuild: whether to rebuild the tables of silver that differ from what is declared, before
            silver starts.

    Raises:
        LakehouseError: a stream was given up. Raised at the end, because the others keep running.
    """
    require_free_ports(lake.settings)
    check_sinks(lake, declared(lake))
    check_addresses([*lake.topics.imports.values()])
    with broker_and_spark(lake.settings, "lakehouse") as (embedded, spark):
        if embedded:
            create_topics(lake)
        serve(spark, lake, rebuild=rebuild)


def require_free_ports(settings: LakeSettings) -> None:
    """Check that the ports for clients are free, and that what they serve is protected.

    Raises:
        SettingsError: a port is in use, or `require_guard` or `require_token` fails. Names the
            setting to change.
    """
    require_guard(settings)
    require_free_port(settings.sql_port, "LAKEHOUSE_SQL_PORT")
    if settings.connect_port is not None:
        require_free_port(settings.connect_port, PORT_SETTING)
        require_token(settings)


def serve(spark: SparkSession, lake: Lake, *, rebuild: bool = False) -> None:
    """Stream, run imports and sinks, answer SQL, and serve Spark Connect if it has a port.

    In a new lake, SQL is served while the changelogs land, for which silver waits. Otherwise it is
    served when silver has caught up, because messages may be waiting.

    Ends with Ctrl-C or SIGTERM.
    """
    is_new = last_commit(lake.settings, QUERY) is None
    with bronze_streams(spark, lake) as running, contextlib.ExitStack() as served:
        if is_new:
            _serve_sql(spark, lake, served)
            with step("Landing the changelogs"):
                let_changelogs_land(running, lake.topics)
        elif rebuild:  # before SQL, because views name columns that the tables do not have yet
            rebuild_outdated(spark, lake)
        with step("Starting silver"):
            running += refine(spark, lake)
        if is_new:
            register(spark, lake)  # silver's tables
        else:
            let_catch_up(running)
            _serve_sql(spark, lake, served)
        _announce(lake.settings)
        notify(READY)
        try:
            imports = run_imports(lake, [*lake.topics.imports.values()])
            await_streams([*imports, *running, *run_sinks(spark, lake, declared(lake))])
        finally:
            notify(STOPPING)


@contextlib.contextmanager
def bronze_streams(spark: SparkSession, lake: Lake) -> Iterator[list[Stream]]:
    """Run the streams of bronze. At the end of the block, all streams of the list are stopped."""
    with step("Starting bronze"):
        running = ingest(spark, lake)
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def _serve_sql(spark: SparkSession, lake: Lake, served: contextlib.ExitStack) -> None:
    register(spark, lake)
    served.enter_context(sql_endpoint(spark, lake.settings))
    served.enter_context(spark_connect(spark, lake.settings))


def rebuild_outdated(spark: SparkSession, lake: Lake) -> None:
    """Rebuild the tables of silver that differ from what is declared, as `lakehouse plan` shows."""
    for part in outdated(lake, QUERY):
        with step(f"Rebuilding {', '.join(part.made)}"):
            rebuild_silver(spark, lake, part=part)


def let_changelogs_land(running: list[Stream], topics: TopicFile) -> None:
    """Wait until each changelog's first batch has landed, at most `LANDING_SECONDS`.

    If silver started earlier, it would write the events that have landed without the rows that they
    look up, and would have to rewrite all of them in its next batch.
    """
    names = {query_name(topic.name) for topic in topics.changelogs()}
    _let_look([stream for stream in running if stream.name in names], LANDING_SECONDS)


def let_catch_up(running: list[Stream]) -> None:
    """Wait until silver has processed what bronze lands first, at most `CATCHING_UP_SECONDS`.

    The start of the SQL endpoint keeps the processor busy for about as long. Messages that arrived
    while nothing was running should not have to wait for that too.
    """
    until = time.monotonic() + CATCHING_UP_SECONDS
    _let_look(running, CATCHING_UP_SECONDS)
    [silver] = (stream for stream in running if stream.name == QUERY)
    landed = max(stream.last_read() for stream in running if stream is not silver)

    def is_refined() -> bool:
        read = silver.last_read()
        return not silver.is_active or read >= landed or bool(read and silver.is_idle)

    _wait(is_refined, until - time.monotonic())


def _let_look(running: list[Stream], seconds: float) -> None:
    _wait(lambda: all(stream.has_looked for stream in running), seconds)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds, or until the time is up."""
    Retrying(
        retry=retry_if_not_result(bool),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.2),
        retry_error_callback=lambda _: False,
    )(condition)


@contextlib.contextmanager
def sql_endpoint(spark: SparkSession, settings: LakeSettings) -> Iterator[None]:
    """Serve SQL on a session, and stop the endpoint at the end of the block."""
    with step("Starting the SQL endpoint"):
        endpoint = start_endpoint(spark, settings)
    try:
        with HEALTH.serving("sql", partial(answers, settings)), OFFER.of(endpoint.reader):
            yield
    finally:
        endpoint.stop()


def _announce(settings: LakeSettings) -> None:
    tls, connect = "/;ssl=true" if settings.sql_tls else "", settings.connect_port
    places = {
        "Console": console_url(settings) if settings.console else "",
        "SQL": f"jdbc:hive2://{settings.sql_host}:{settings.sql_port}{tls}",
        "Spark Connect": f"sc://{settings.connect_host}:{connect}" if connect else "",
        "Pulsar": settings.pulsar_url,
        "Home": settings.home_dir,
    }
    shown = [f"  {name}: [bold]{escape(str(each))}[/bold]" for name, each in places.items() if each]
    err.print(
        "\nRunning. Press Ctrl-C to stop.",
        *shown,
        "In another terminal: [bold]lakehouse publish --data DIR[/bold], "
        "[bold]lakehouse status[/bold],",
        '[bold]lakehouse gold[/bold], [bold]lakehouse sql "show tables in silver"[/bold].\n',
        sep="\n",
    )
