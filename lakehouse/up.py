"""`lakehouse up`: broker, streams and SQL endpoint in one place, until they are told to stop."""

import contextlib
import time
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from bronze.ingest import ingest, query_name
from gold.catalog import register
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import last_commit
from lake.streams.job import await_streams
from lake.streams.supervisor import Stream
from lake.topics.topic_file import TopicFile
from lakehouse.operate.publish import create_topics
from lakehouse.runtime.console import err, step
from lakehouse.runtime.ports import require_free_port
from lakehouse.runtime.run import broker_and_spark
from lakehouse.sql.connect import PORT_SETTING, spark_connect
from lakehouse.sql.endpoint import start_endpoint
from lakehouse.sql.guard import require_guard
from silver.refine import QUERY, refine

LANDING_SECONDS = 60
CATCHING_UP_SECONDS = 30


def up(settings: LakeSettings, topics: TopicFile) -> None:
    """Run everything until Ctrl-C or SIGTERM, then stop it in order: streams, SQL, broker.

    Raises:
        LakehouseError: a stream was given up; told at the end, as the others go on.
    """
    require_free_ports(settings)
    with broker_and_spark(settings, "lakehouse") as (embedded, spark):
        if embedded:
            create_topics(settings, topics)
        serve(spark, settings, topics)


def require_free_ports(settings: LakeSettings) -> None:
    """See that nothing listens where clients will be served, and that SQL may be served there.

    Raises:
        SettingsError: it is not so; names the setting to change.
    """
    require_guard(settings)
    require_free_port(settings.sql_port, "LAKEHOUSE_SQL_PORT")
    if settings.connect_port is not None:
        require_free_port(settings.connect_port, PORT_SETTING)


def serve(spark: SparkSession, settings: LakeSettings, topics: TopicFile) -> None:
    """Stream, answer SQL and serve Spark Connect if set, until Ctrl-C or SIGTERM."""
    with streams(spark, settings, topics) as running:
        let_catch_up(running)
        register(spark, settings, topics)
        with sql_endpoint(spark, settings), spark_connect(spark, settings):
            _announce(settings)
            await_streams(running)


@contextlib.contextmanager
def streams(
    spark: SparkSession, settings: LakeSettings, topics: TopicFile
) -> Iterator[list[Stream]]:
    """Bronze and silver as running streams."""
    with step("Starting the streams"):
        running = ingest(spark, settings, topics)
        if last_commit(settings, QUERY) is None:
            let_changelogs_land(running, topics)
        running += refine(spark, settings, topics)
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def let_changelogs_land(running: list[Stream], topics: TopicFile) -> None:
    """Wait, for a while, until each changelog's first batch has landed.

    A silver that begins before it would write the events that have landed by then without what they
    look up, and all of them once more in its next batch.
    """
    names = {query_name(topic.name) for topic in topics.changelogs()}
    _let_look([stream for stream in running if stream.name in names], LANDING_SECONDS)


def let_catch_up(running: list[Stream]) -> None:
    """Wait, for a while, until what bronze lands first has gone through silver, if it is anything.

    What waited while nothing ran should not wait for the SQL endpoint too, which takes the
    processor for as long again.
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
    """Wait until it holds, or until the seconds are over."""
    Retrying(
        retry=retry_if_not_result(bool),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.2),
        retry_error_callback=lambda _: False,
    )(condition)


@contextlib.contextmanager
def sql_endpoint(spark: SparkSession, settings: LakeSettings) -> Iterator[None]:
    """The SQL endpoint of a session."""
    with step("Starting the SQL endpoint"):
        endpoint = start_endpoint(spark, settings)
    try:
        yield
    finally:
        endpoint.stop()


def _announce(settings: LakeSettings) -> None:
    connect = f"  Spark Connect: [bold]sc://{settings.connect_host}:{settings.connect_port}[/bold]"
    err.print(
        f"\nRunning. Pulsar: [bold]{settings.pulsar_url}[/bold]  "
        f"SQL: [bold]jdbc:hive2://{settings.sql_host}:{settings.sql_port}"
        f"{'/;ssl=true' if settings.sql_tls else ''}[/bold]"
        f"{connect if settings.connect_port else ''}\n"
        "Elsewhere: [bold]lakehouse publish --data DIR[/bold], [bold]lakehouse status[/bold], "
        '[bold]lakehouse gold[/bold], [bold]lakehouse sql "show tables in silver"[/bold]. '
        "Ctrl-C stops.\n"
    )
