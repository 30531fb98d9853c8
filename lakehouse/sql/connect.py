"""Spark Connect, if a port is set: DataFrames on the running driver for clients without Java."""

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from lake.settings.settings import LakeSettings
from lakehouse.runtime.ports import require_free_port

PORT_SETTING = "LAKEHOUSE_CONNECT_PORT"


@contextlib.contextmanager
def spark_connect(spark: SparkSession, settings: LakeSettings) -> Iterator[None]:
    """Serve on `connect_host` and `connect_port` while the block runs; do nothing without a port.

    Clients see the session's catalog. They need no password and can run any code as the driver's
    user. On any host other than loopback, the network must therefore protect the port.

    Raises:
        SettingsError: the port is in use.
    """
    if settings.connect_port is None:
        yield
        return
    require_free_port(settings.connect_port, PORT_SETTING)
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", settings.connect_host)
    conf.set("spark.connect.grpc.binding.port", str(settings.connect_port))
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark._jsparkSession.sparkContext())  # noqa: SLF001
    try:
        yield
    finally:
        none = jvm.scala.Option.empty()
        service.stop(none, none)
