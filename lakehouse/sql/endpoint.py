"""The SQL endpoint: the running Spark driver serves the HiveServer2 protocol (Thrift/JDBC)."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from thrift.transport.TTransport import TTransportException

from gold.sql_client import SqlError, connect
from lake.settings.settings import LakeSettings
from lake.tables.java_source import classes_folder
from lakehouse.runtime.ports import require_free_port
from lakehouse.sql.guard import hive_configuration, prepare_authentication, require_guard

START_SECONDS = 60


class SqlEndpoint:
    """The endpoint of a Spark session, which serves the catalog of that session."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def stop(self) -> None:
        """Stop serving, and close the port."""
        self._server.stop()


def start_endpoint(spark: SparkSession, settings: LakeSettings) -> SqlEndpoint:
    """Serve SQL on `settings.sql_host` and `sql_port`, and wait until the endpoint answers.

    Raises:
        SettingsError: the port is in use, the endpoint would be open to other machines, or a file
            for TLS or passwords is missing or invalid.
        SqlError: the endpoint did not start within `START_SECONDS`.
    """
    require_free_port(settings.sql_port, "LAKEHOUSE_SQL_PORT")
    require_guard(settings)
    prepare_authentication(spark._jvm, settings, classes_folder(settings))  # noqa: SLF001 - Python has no other way
    with tempfile.TemporaryDirectory() as folder:  # mode 0700, deleted once the key store is read
        endpoint = SqlEndpoint(_start(spark, hive_configuration(settings, Path(folder))))
    try:
        Retrying(
            retry=retry_if_exception_type(TTransportException),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.1),
            reraise=True,
        )(answers, settings)
    except TTransportException as error:
        endpoint.stop()
        message = f"The SQL endpoint did not start on port {settings.sql_port}: {error}."
        raise SqlError(message) from error
    return endpoint


def _start(spark: SparkSession, configuration: dict[str, str]) -> Any:
    """Start HiveServer2, and then unset its configuration, which any client can read with SQL."""
    hive_server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2  # type: ignore[union-attr]  # noqa: SLF001
    hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration()  # noqa: SLF001
    # Otherwise a thread reuses the configuration of the first endpoint that it started.
    spark._jvm.org.apache.hadoop.hive.ql.session.SessionState.detachSession()  # type: ignore[union-attr]  # noqa: SLF001
    for name, value in configuration.items():
        hadoop.set(name, value)
    try:
        # False: an error in the server does not end the process, in which the streams run.
        return hive_server.startWithSparkSession(spark._jsparkSession, False)  # noqa: SLF001
    finally:
        for name in configuration:
            hadoop.unset(name)


def answers(settings: LakeSettings) -> None:
    """Check that the endpoint answers a client, be it by a refusal.

    Raises:
        TTransportException: it does not.
    """
    with suppress(SqlError):  # an endpoint that refuses us is running
        connect(settings).close()
