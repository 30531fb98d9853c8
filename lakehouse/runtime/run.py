"""Spark sessions and brokers for the commands. Each is stopped when its block ends."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.streams.job import stop_spark
from lake.tables.format import require_known_format
from lakehouse.runtime.broker import (
    Broker,
    broker_answers,
    is_local,
    require_broker,
    start_broker,
)
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.metastore import jar_groups
from lakehouse.runtime.session import build_session
from lakehouse.runtime.terminal import jar_progress, step


@contextlib.contextmanager
def spark_session(settings: LakeSettings, name: str) -> Iterator[SparkSession]:
    """Start a Spark session, and stop it at the end of the block.

    Raises:
        FormatError: a newer release has written the lake.
        SettingsError: the tables are in a bucket that cannot be used.
        JarError: a jar could not be fetched.
    """
    require_known_format(settings)
    fetch_all_jars(settings, *jar_groups(settings))
    with step("Starting Spark"):
        spark = build_session(settings, name)
    try:
        yield spark
    finally:
        stop_spark(spark)


def fetch_all_jars(settings: LakeSettings, *groups: str) -> None:
    """Fetch the jars of some groups with a progress bar, before anything is started.

    Raises:
        JarError: a jar could not be fetched.
    """
    for group in groups:
        with jar_progress(f"Fetching jars of {group}") as progress:
            fetch_jars(settings, group, progress)


@contextlib.contextmanager
def broker_and_spark(settings: LakeSettings, name: str) -> Iterator[tuple[bool, SparkSession]]:
    """Start a Spark session and, if no broker answers at the configured address, the embedded one.

    Both start in parallel. At the end of the block Spark is stopped first.

    Yields:
        Whether the broker is the embedded one, and the session.

    Raises:
        BrokerError: the settings name another machine, and no broker answers there.
        FormatError: a newer release has written the lake.
        SettingsError: the tables are in a bucket that cannot be used.
    """
    require_known_format(settings)
    embedded = not broker_answers(settings)
    if embedded and not is_local(settings):
        require_broker(settings)
    fetch_all_jars(settings, *jar_groups(settings), *(["pulsar"] * embedded))
    with contextlib.ExitStack() as stack:
        with (
            step("Starting Pulsar and Spark" if embedded else "Starting Spark"),
            ThreadPoolExecutor(1) as pool,
        ):
            starting = pool.submit(start_broker, settings) if embedded else None
            if starting:
                stack.callback(_stop_broker, starting)
            spark = build_session(settings, name)
            stack.callback(stop_spark, spark)
            if starting:
                starting.result()
        yield embedded, spark


def _stop_broker(starting: Future[Broker]) -> None:
    if starting.exception() is None:
        with step("Stopping Pulsar"):
            starting.result().stop()
