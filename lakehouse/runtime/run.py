"""What the commands run on: a Spark session, a broker. Each is stopped when its block ends."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lake.streams.job import stop_spark
from lake.tables.storage import require_bucket
from lakehouse.runtime.broker import Broker, broker_answers, is_local, start_broker
from lakehouse.runtime.console import jar_progress, step
from lakehouse.runtime.jars import fetch_jars
from lakehouse.runtime.metastore import jar_groups
from lakehouse.runtime.session import build_session
from pulsar_spark.errors import BrokerError


@contextlib.contextmanager
def spark_session(settings: LakeSettings, name: str) -> Iterator[SparkSession]:
    """A Spark session that is stopped at the end.

    Raises:
        SettingsError: tables lie in a bucket that cannot be used.
    """
    require_bucket(settings)
    fetch_all_jars(settings, *jar_groups(settings))
    with step("Starting Spark"):
        spark = build_session(settings, name)
    try:
        yield spark
    finally:
        stop_spark(spark)


def fetch_all_jars(settings: LakeSettings, *groups: str) -> None:
    """Have the jars of some groups before anything is started, as progress can be shown of that.

    Raises:
        JarError: a jar cannot be had.
    """
    for group in groups:
        with jar_progress(f"Fetching jars of {group}") as progress:
            fetch_jars(settings, group, progress)


@contextlib.contextmanager
def broker_and_spark(settings: LakeSettings, name: str) -> Iterator[tuple[bool, SparkSession]]:
    """A Spark session, and the broker of the settings if it answers, else the embedded one.

    Both are started side by side. Spark is stopped first.

    Yields:
        Whether the broker is the embedded one; the session.

    Raises:
        BrokerError: the settings name another machine, and no broker answers there.
        SettingsError: tables lie in a bucket that cannot be used.
    """
    require_bucket(settings)
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


def require_broker(settings: LakeSettings) -> None:
    """See that a broker answers.

    Raises:
        BrokerError: none does.
    """
    if not broker_answers(settings):
        message = (
            f"No Pulsar broker answers at {settings.pulsar_admin_url}. Start one with `lakehouse "
            "up`, or name yours with LAKEHOUSE_PULSAR_URL and LAKEHOUSE_PULSAR_ADMIN_URL."
        )
        raise BrokerError(message)
