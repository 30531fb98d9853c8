"""Spark Connect, if a port is set: DataFrames on the running driver for clients without Java."""

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from lake.settings.secret_files import secret_text
from lake.settings.settings import LakeSettings
from lakehouse.runtime.ports import require_free_port
from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import hide

PORT_SETTING = "LAKEHOUSE_CONNECT_PORT"
TOKEN_SETTING = "LAKEHOUSE_CONNECT_TOKEN_FILE"  # noqa: S105 - the name of the setting
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of Spark's setting


def require_token(settings: LakeSettings) -> str | None:
    """The token that clients must send; None if the endpoint asks for no passwords and none is set.

    Raises:
        SettingsError: the SQL endpoint has roles, but no token is set; or its file is not private.
    """
    file = settings.connect_token_file
    if settings.connect_port is None or file is None:
        if settings.connect_port is not None and settings.sql_authentication != "none":
            what = (
                f"{PORT_SETTING}: the SQL endpoint asks for passwords, but Spark Connect would let "
                "in everyone who reaches its port, with the rights of an owner."
            )
            raise SettingsError(what, f"Set {TOKEN_SETTING}, or do without Spark Connect.")
        return None
    return hide(secret_text(TOKEN_SETTING, file))


@contextlib.contextmanager
def spark_connect(spark: SparkSession, settings: LakeSettings) -> Iterator[None]:
    """Serve on `connect_host` and `connect_port` while the block runs; do nothing without a port.

    Clients see the session's catalog and can run any code as the driver's user. The roles of the
    SQL endpoint cannot be enforced here. If there are roles, only clients with a token get in,
    which is for owners. Otherwise clients need no password, and on any host other than loopback,
    the network must protect the port.

    Raises:
        SettingsError: the port is in use, or `require_token` fails.
    """
    if settings.connect_port is None:
        yield
        return
    require_free_port(settings.connect_port, PORT_SETTING)
    token = require_token(settings)
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", settings.connect_host)
    conf.set("spark.connect.grpc.binding.port", str(settings.connect_port))
    if token:
        conf.set(TOKEN, token)
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    try:
        service.start(spark._jsparkSession.sparkContext())  # noqa: SLF001
    finally:
        conf.remove(TOKEN)  # which sessions would show
    try:
        yield
    finally:
        none = jvm.scala.Option.empty()
        service.stop(none, none)
