"""The SQL endpoint: HiveServer2's protocol (Thrift/JDBC), served by the running Spark driver."""

from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from thrift.transport.TTransport import TTransportException

from bronze.settings import LakeSettings
from gold.endpoint import SqlError, connect
from lakehouse.broker import require_free_port

START_SECONDS = 60


class SqlEndpoint:
    """The endpoint of a Spark session. It serves the session's own catalog."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()


def start_endpoint(spark: SparkSession, settings: LakeSettings) -> SqlEndpoint:
    """Serve SQL on `settings.sql_host` and `sql_port`, and wait until a client gets in.

    It asks for no password: on another host than loopback, a network must guard it.

    Raises:
        SettingsError: the port is in use.
        SqlError: it did not come up.
    """
    require_free_port(settings.sql_port, "LAKEHOUSE_SQL_PORT")
    hive_server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2  # type: ignore[union-attr]  # noqa: SLF001 - Python has no other way
    server = hive_server.startWithContext(spark._jsparkSession.sqlContext())  # noqa: SLF001
    endpoint = SqlEndpoint(server)
    try:
        Retrying(
            retry=retry_if_exception_type(TTransportException),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.1),
            reraise=True,
        )(connect, settings).close()
    except TTransportException as error:
        endpoint.stop()
        message = f"The SQL endpoint did not come up on port {settings.sql_port}: {error}."
        raise SqlError(message) from error
    return endpoint


def endpoint_running(settings: LakeSettings) -> bool:
    """Whether a client gets in."""
    with suppress(TTransportException):
        connect(settings).close()
        return True
    return False
