"""The SQL endpoint: the running Spark driver serves the HiveServer2 protocol (Thrift/JDBC)."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from thrift.transport.TTransport import TTransportException

from gold.sql_client import SqlError, connect
from lake.settings.settings import LakeSettings
from lake.tables.java_source import classes_folder
from lake.topics.topic_file import load_topics
from lakehouse.runtime.ports import require_free_port
from lakehouse.sql.access import policy
from lakehouse.sql.audit import AuditLog
from lakehouse.sql.certificate import CertificateWatch
from lakehouse.sql.guard import (
    hive_configuration,
    prepare_authentication,
    require_guard,
    unlimited_users,
    write_key_store,
)
from lakehouse.sql.reader import Reader
from lakehouse.sql.users import users_file

START_SECONDS = 60

log = structlog.get_logger()


class SqlEndpoint:
    """The endpoint of a Spark session, which serves the catalog of that session.

    reader: runs statements for the console, with the rights of a reader.
    """

    def __init__(
        self,
        server: Any,
        reader: Reader,
        renewing: CertificateWatch | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._server = server
        self.reader = reader
        self._renewing, self._audit = renewing, audit

    def stop(self) -> None:
        """Stop serving, and close the port."""
        if self._renewing:
            self._renewing.stop()
        self._server.stop()
        if self._audit:
            self._audit.stop()


def start_endpoint(spark: SparkSession, settings: LakeSettings) -> SqlEndpoint:
    """Serve SQL on `settings.sql_host` and `sql_port`, and wait until the endpoint answers.

    Raises:
        SettingsError: the port is in use, the endpoint would be open to other machines, or a file
            for TLS or passwords, also one of our own client, is missing or invalid.
        SqlError: the endpoint did not start within `START_SECONDS`.
    """
    require_free_port(settings.sql_port, "LAKEHOUSE_SQL_PORT")
    require_guard(settings)
    start = _start_open if settings.sql_authentication == "none" else _start_guarded
    endpoint = start(spark, settings)
    try:
        Retrying(
            retry=retry_if_exception_type(TTransportException),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.1),
            reraise=True,
        )(answers, settings)
    except BaseException as error:
        endpoint.stop()
        if not isinstance(error, TTransportException):
            raise
        message = f"The SQL endpoint did not start on port {settings.sql_port}: {error}."
        raise SqlError(message) from error
    return endpoint


def _start_open(spark: SparkSession, settings: LakeSettings) -> SqlEndpoint:
    """Start Spark's own server, in which everyone has all rights."""
    configuration = hive_configuration(settings)
    hive_server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2  # type: ignore[union-attr]  # noqa: SLF001
    with tempfile.TemporaryDirectory() as folder:  # mode 0700, deleted once the key store is read
        if settings.sql_tls:
            store, password = write_key_store(settings, Path(folder))
            configuration |= {
                "hive.server2.use.SSL": "true",
                "hive.server2.keystore.path": str(store),
                "hive.server2.keystore.password": password,
            }
        with _configured(spark, configuration):
            # False: an error in the server does not end the process, in which the streams run.
            server = hive_server.startWithSparkSession(spark._jsparkSession, False)  # noqa: SLF001
            return SqlEndpoint(server, Reader(spark, settings))


def _start_guarded(spark: SparkSession, settings: LakeSettings) -> SqlEndpoint:
    """Start the server that holds each user to a role (`GuardedServer.java`)."""
    if unlimited := unlimited_users(settings):
        found, remedy = unlimited
        log.warning("sql_users_without_role", found=found, remedy=remedy)
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    prepare_authentication(jvm, settings, classes_folder(settings))
    has_file = settings.sql_authentication == "password"
    file = str(users_file(settings).resolve()) if has_file else None
    access = jvm.lakehouse.Access(policy(settings, load_topics(settings.topics)), file)
    renewing = CertificateWatch(jvm, settings) if settings.sql_tls else None
    audit = AuditLog(spark, settings)
    with _configured(spark, hive_configuration(settings)):
        server = jvm.lakehouse.GuardedServer.start(
            spark._jsparkSession,  # noqa: SLF001
            access,
            renewing and renewing.tls,
        )
    if renewing:
        renewing.start()
    audit.start(server)
    return SqlEndpoint(server, Reader(spark, settings, server), renewing, audit)


@contextmanager
def _configured(spark: SparkSession, configuration: dict[str, str]) -> Iterator[None]:
    """Configure HiveServer2 only while it starts, because clients can read its settings by SQL."""
    hadoop = spark._jsparkSession.sparkContext().hadoopConfiguration()  # noqa: SLF001
    # Otherwise a thread reuses the configuration of the first endpoint that it started.
    spark._jvm.org.apache.hadoop.hive.ql.session.SessionState.detachSession()  # type: ignore[union-attr]  # noqa: SLF001
    for name, value in configuration.items():
        hadoop.set(name, value)
    try:
        yield
    finally:
        for name in configuration:
            hadoop.unset(name)


def answers(settings: LakeSettings) -> None:
    """Check that the endpoint answers a client, even if it refuses the client.

    Raises:
        TTransportException: it does not.
    """
    with suppress(SqlError):  # an endpoint that refuses us is running
        connect(settings).close()
