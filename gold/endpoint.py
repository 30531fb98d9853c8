"""Client of the SQL endpoint (HiveServer2's protocol), where dbt builds and people read."""

import logging
from typing import Any

from pyhive import hive
from thrift.transport.TSocket import TSocket
from thrift_sasl import TSaslClientTransport

from bronze.errors import LakehouseError
from bronze.settings import LakeSettings

CONNECT_SECONDS = 10

logging.getLogger("thrift").setLevel(logging.CRITICAL)  # a refused connection is an answer here


class SqlError(LakehouseError):
    """A statement failed, or the endpoint did."""


def query_endpoint(settings: LakeSettings, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one statement, run by the endpoint.

    Raises:
        SqlError: Spark refused the statement; the message is Spark's own.
    """
    with connect(settings) as connection, connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except hive.OperationalError as error:
            raise SqlError(_spark_message(error)) from error
        if cursor.description is None:
            return [], []
        names = [column[0] for column in cursor.description]
        return names, cursor.fetchall()


def connect(settings: LakeSettings) -> Any:
    """A connection. PyHive waits for ever, also for a port where something else listens.

    Raises:
        TTransportException: nothing answers there.
    """
    socket = TSocket(settings.sql_host, settings.sql_port)
    socket.setTimeout(CONNECT_SECONDS * 1000)
    who = {"host": settings.sql_host, "username": "lakehouse"}
    who["password"] = "none"  # noqa: S105 - it asks for one  # pragma: allowlist secret
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
