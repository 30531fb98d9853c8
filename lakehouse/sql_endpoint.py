"""The SQL endpoint: HiveServer2's protocol (Thrift/JDBC), served by the running Spark driver."""

import logging
from contextlib import suppress
from typing import Any

from pyhive import hive
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TTransportException
from thrift_sasl import TSaslClientTransport

from bronze.errors import LakehouseError
from bronze.settings import LakeSettings
from lakehouse.broker import require_free_port

START_SECONDS = 60
CONNECT_SECONDS = 10

logging.getLogger("thrift").setLevel(logging.CRITICAL)  # a refused connection is an answer here


class SqlError(LakehouseError):
    """A statement failed, or the endpoint did."""


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
        )(_connect, settings).close()
    except TTransportException as error:
        endpoint.stop()
        message = f"The SQL endpoint did not come up on port {settings.sql_port}: {error}."
        raise SqlError(message) from error
    return endpoint


def endpoint_running(settings: LakeSettings) -> bool:
    """Whether a client gets in."""
    with suppress(TTransportException):
        _connect(settings).close()
        return True
    return False


def query_endpoint(settings: LakeSettings, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one statement, run by the endpoint.

    Raises:
        SqlError: Spark refused the statement; the message is Spark's own.
    """
    with _connect(settings) as connection, connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except hive.OperationalError as error:
            raise SqlError(_spark_message(error)) from error
        if cursor.description is None:
            return [], []
        names = [column[0] for column in cursor.description]
        return names, cursor.fetchall()


def _connect(settings: LakeSettings) -> Any:
    """A connection. PyHive waits for ever, also for a port where something else listens."""
    socket = TSocket(settings.sql_host, settings.sql_port)
    socket.setTimeout(CONNECT_SECONDS * 1000)
    who = {"host": settings.sql_host, "username": "lakehouse", "password": "none"}
    sasl = TSaslClientTransport(
        lambda: hive.get_pure_sasl_client(sasl_auth="PLAIN", **who), "PLAIN", socket
    )
    connection = hive.Connection(username="lakehouse", thrift_transport=sasl)
    socket.setTimeout(None)  # a statement may take long
    return connection


def _spark_message(error: Exception) -> str:
    status = getattr(error.args[0], "status", None) if error.args else None
    text = str(getattr(status, "errorMessage", error))
    return text.splitlines()[0].split("org.apache.spark.sql.AnalysisException: ")[-1].strip()
