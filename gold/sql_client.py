"""Client of the SQL endpoint (HiveServer2 protocol), through which dbt builds and people read."""

import logging
import re
import ssl
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from socket import create_connection, getaddrinfo
from typing import Any

from pyhive import hive
from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException
from thrift_sasl import TSaslClientTransport

from lake.settings.secret_files import secret_text
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import LakehouseError, SettingsError
from pulsar_spark.log_masking import hide

CONNECT_SECONDS = 10
TRUST_ENV = "LAKEHOUSE_SQL_TLS_TRUST_CERTS_FILE"
ANY_PASSWORD = "none"  # noqa: S105 - PyHive wants one  # pragma: allowlist secret

# The classes of errors that precede their messages: Spark's, and that of `Access.java`.
CLASSES = r"org\.apache\.spark\.sql\.AnalysisException: |lakehouse\.Access\$AccessDenied: "

logging.getLogger("thrift").setLevel(logging.CRITICAL)  # a refused connection is expected


class SqlError(LakehouseError):
    """A statement or the endpoint failed."""


def query_endpoint(settings: LakeSettings, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one statement at the endpoint, and return its column names and rows.

    Raises:
        SqlError: Spark rejected the statement; the message is Spark's own. Or the endpoint does not
            answer, or no longer.
    """
    try:
        with connect(settings) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            if cursor.description is None:
                return [], []
            names = [column[0] for column in cursor.description]
            return names, cursor.fetchall()
    except hive.OperationalError as error:
        raise SqlError(_spark_message(error)) from error
    except (TTransportException, OSError, EOFError) as error:
        what = (
            f"The SQL endpoint at {settings.sql_host}:{settings.sql_port} does not answer, or was "
            f"stopped while the statement ran: {error or type(error).__name__}."
        )
        raise SqlError(what, "Check that it is running, and try again.") from error


def connect(settings: LakeSettings) -> Any:
    """Connect to the endpoint within `CONNECT_SECONDS`.

    By itself, PyHive would wait forever, even if something else listens on the port.

    Raises:
        TTransportException: nothing answers, or what answers is not an SQL endpoint.
        SqlError: the endpoint cannot be trusted, or does not let us in.
        SettingsError: a file named in a setting does not exist, other users can read a secret, or
            the password would be sent as plain text.
    """
    user, password = credentials(settings)
    if password != ANY_PASSWORD:
        _require_secrecy(settings)
    socket = TSocket(settings.sql_host, settings.sql_port)
    if settings.sql_tls:
        context = tls_context(settings.sql_tls_trust_certs_file)
        socket = TSSLSocket(settings.sql_host, settings.sql_port, ssl_context=context)
    socket.setTimeout(CONNECT_SECONDS * 1000)
    try:
        socket.open()  # otherwise PyHive closes a socket that is not open, and hides the cause
        connection = hive.Connection(
            username=user, thrift_transport=plain_sasl(socket, user, password)
        )
    except TTransportException as error:
        if socket.handle:  # of a closed one, TSSLSocket.close would fail
            socket.close()
        cause = _refused(settings, str(error))
        if cause is None and error.type != TTransportException.TIMED_OUT:
            cause = _tls_differs(settings)
        if cause is None:
            raise
        raise cause from error
    except hive.OperationalError as error:
        raise SqlError(_spark_message(error)) from error
    socket.setTimeout(None)  # a statement may take long
    return connection


def endpoint_running(settings: LakeSettings) -> bool:
    """Whether the endpoint is running and lets us in.

    Raises:
        SqlError: the endpoint is running, but does not let us in or cannot be trusted.
    """
    with suppress(TTransportException):
        connect(settings).close()
        return True
    return False


def credentials(settings: LakeSettings) -> tuple[str, str]:
    """User and password of our own clients. An endpoint that requires none accepts any.

    Raises:
        SettingsError: two passwords are set, or the file of the password does not exist or can be
            read by other users.
    """
    secret, file = settings.sql_password, settings.sql_password_file
    if secret and file:
        what = "LAKEHOUSE_SQL_PASSWORD and LAKEHOUSE_SQL_PASSWORD_FILE each hold a password."
        raise SettingsError(what, "Set only one of them.")
    if file:
        return settings.sql_user, hide(secret_text("LAKEHOUSE_SQL_PASSWORD_FILE", file))
    return settings.sql_user, hide(secret.get_secret_value()) if secret else ANY_PASSWORD


def client_environment(settings: LakeSettings) -> dict[str, str]:
    """The variables by which another program connects to the endpoint as we do.

    For dbt and Superset. The password is left out, because each takes it in a way of its own.
    """
    trust = settings.sql_tls_trust_certs_file
    return {
        "LAKEHOUSE_SQL_HOST": settings.sql_host,
        "LAKEHOUSE_SQL_PORT": str(settings.sql_port),
        "LAKEHOUSE_SQL_TLS": str(settings.sql_tls).lower(),
        "LAKEHOUSE_SQL_USER": settings.sql_user,
        **({TRUST_ENV: str(trust.expanduser().resolve())} if trust else {}),
    }


def tls_context(trust: Path | None) -> ssl.SSLContext:
    """The TLS context with which a client verifies the endpoint, by authority and by host name.

    Args:
        trust: PEM file of the trusted authorities; those of the system if None.

    Raises:
        SettingsError: the file does not exist or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=trust.expanduser() if trust else None)
    except OSError as error:  # an SSLError, too
        what = (
            f"{TRUST_ENV}: {trust} cannot be read as PEM certificates ({error.strerror or error})."
        )
        raise SettingsError(what, "Correct the path or the file.") from error


def plain_sasl(socket: TSocket, user: str, password: str) -> TSaslClientTransport:
    """HiveServer2's transport over a socket, for all authentication methods except Kerberos."""
    who = {"host": socket.host, "username": user, "password": password}
    return TSaslClientTransport(
        lambda: hive.get_pure_sasl_client(sasl_auth="PLAIN", **who), "PLAIN", socket
    )


def is_loopback(host: str) -> bool:
    """Whether a host can be reached only from this machine, under all addresses of its name."""
    try:
        found = {info[4][0] for info in getaddrinfo(host, None)}
    except OSError:
        return False
    numbers = map(ip_address, found)
    return all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in numbers)


def _require_secrecy(settings: LakeSettings) -> None:
    if not (settings.sql_tls or settings.sql_allow_insecure or is_loopback(settings.sql_host)):
        what = (
            f"The password for the SQL endpoint would be sent to {settings.sql_host} as plain text."
        )
        remedy = (
            "Set LAKEHOUSE_SQL_TLS=true or, on a protected network, "
            "LAKEHOUSE_SQL_ALLOW_INSECURE=true."
        )
        raise SettingsError(what, remedy)


def _refused(settings: LakeSettings, said: str) -> SqlError | None:
    if "Error validating the login" not in said:
        return None
    return SqlError(
        f"The SQL endpoint at {settings.sql_host}:{settings.sql_port} rejected the user "
        f"'{settings.sql_user}': the name or the password is wrong.",
        "Set LAKEHOUSE_SQL_USER, and LAKEHOUSE_SQL_PASSWORD_FILE or LAKEHOUSE_SQL_PASSWORD. If "
        "they are right, wait a minute: after several wrong passwords, the endpoint rejects all.",
    )


def _tls_differs(settings: LakeSettings) -> SqlError | None:
    """Why the TLS settings of both sides do not fit; None if this is not the problem.

    Thrift itself does not say.
    """
    place = f"{settings.sql_host}:{settings.sql_port}"
    trust = settings.sql_tls_trust_certs_file
    context = tls_context(trust) if settings.sql_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not settings.sql_tls:  # only checks whether the endpoint speaks TLS; sends nothing
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            create_connection((settings.sql_host, settings.sql_port), CONNECT_SECONDS) as socket,
            context.wrap_socket(socket, server_hostname=settings.sql_host),
        ):
            if settings.sql_tls:
                return None
            what = f"The SQL endpoint at {place} accepts only TLS."
            return SqlError(what, "Set LAKEHOUSE_SQL_TLS=true.")
    except ssl.SSLCertVerificationError as error:
        return SqlError(
            f"The certificate of the SQL endpoint at {place} cannot be trusted: "
            f"{error.verify_message}.",
            f"Set {TRUST_ENV} (now {trust or 'not set'}) to the certificates of its authorities, "
            "and LAKEHOUSE_SQL_HOST to a name in the certificate.",
        )
    except ssl.SSLError as error:
        if settings.sql_tls:
            return SqlError(
                f"The server at {place} does not speak TLS, but LAKEHOUSE_SQL_TLS is on: {error}.",
                "Turn LAKEHOUSE_SQL_TLS off, or correct LAKEHOUSE_SQL_HOST and LAKEHOUSE_SQL_PORT.",
            )
    except OSError:
        pass
    return None


def _spark_message(error: Exception) -> str:
    status = getattr(error.args[0], "status", None) if error.args else None
    text = str(getattr(status, "errorMessage", error))
    first = next(iter(text.splitlines()), "") or "The SQL endpoint gave no reason."
    return re.split(CLASSES, first)[-1].strip()
