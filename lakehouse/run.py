"""What the commands run on: a Spark session, a broker. Each is stopped when its block ends."""

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from bronze.errors import BrokerError
from bronze.job import stop_spark
from bronze.settings import LakeSettings
from bronze.storage import require_bucket
from lakehouse.broker import Broker, broker_answers, is_local, start_broker
from lakehouse.console import jar_progress, step
from lakehouse.session import build_session


@contextlib.contextmanager
def spark_session(settings: LakeSettings, name: str) -> Iterator[SparkSession]:
    """A Spark session that is stopped at the end.

    Raises:
        SettingsError: tables lie in a bucket that cannot be used.
    """
    require_bucket(settings)
    with jar_progress("Fetching jars for Spark") as progress, step("Starting Spark"):
        spark = build_session(settings, name, progress)
    try:
        yield spark
    finally:
        stop_spark(spark)


@contextlib.contextmanager
def embedded_broker(settings: LakeSettings) -> Iterator[Broker]:
    """The embedded broker, stopped at the end."""
    with jar_progress("Fetching jars for Pulsar") as progress, step("Starting Pulsar"):
        broker = start_broker(settings, progress)
    try:
        yield broker
    finally:
        with step("Stopping Pulsar"):
            broker.stop()


@contextlib.contextmanager
def broker_as_set(settings: LakeSettings) -> Iterator[bool]:
    """The broker of the settings if it answers, else the embedded one in its place.

    Yields:
        Whether it is the embedded one.

    Raises:
        BrokerError: the settings name another machine, and no broker answers there.
    """
    if broker_answers(settings):
        yield False
    elif is_local(settings):
        with embedded_broker(settings):
            yield True
    else:
        require_broker(settings)


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
