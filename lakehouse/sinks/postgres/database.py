"""Connects to the database of a sink or an import, and explains its errors.

The address holds a password. It is read when it is needed, and is in no message: libpq's own errors
about an address repeat parts of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lake.observe.lineage import Place
from lake.settings.secret_files import secret_text
from lake.topics.sink import Export, Import
from pulsar_spark.errors import LakehouseError, SettingsError

if TYPE_CHECKING:
    import psycopg

# Classes of SQLSTATE. https://www.postgresql.org/docs/current/errcodes-appendix.html
OF_A_ROW = ("21", "22", "23", "44", "54", "P0")  # another row may be accepted
MAY_PASS = ("08", "25", "40", "53", "55", "57", "58")  # connections, deadlocks, resources, restarts
FORM = "postgresql://HOST:PORT/DATABASE?user=NAME&password=WORD&sslmode=verify-full"
# A failed server is noticed within half a minute, not after hours.
DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


class DatabaseError(LakehouseError):
    """The database cannot be reached, or refuses a statement for a reason that may pass."""

    may_pass = True


def require_driver() -> None:
    """Check that the driver of PostgreSQL is installed.

    Raises:
        SettingsError: it is not.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        what = f"The topic file has [export] or [import], which need the package psycopg: {error}."
        remedy = "Install the extra `postgres` (pip install 'orders-lakehouse[postgres]')."
        raise SettingsError(what, remedy) from error


def check_addresses(declared: Sequence[Export | Import]) -> None:
    """Check what can be known of the databases of sinks or imports before anything is started.

    Raises:
        SettingsError: the driver is not installed, or the address of a database cannot be read.
    """
    if declared:
        require_driver()
    for each in declared:
        address_of(each)


def address_of(sink: Export | Import) -> dict[str, Any]:
    """The parameters of the connection to the database of a sink or an import.

    Raises:
        SettingsError: the variable or file does not exist, is empty or does not hold an address.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    if sink.url_env is not None:
        place = f"{sink.label}.url_env: the environment variable {sink.url_env}"
        text = os.environ.get(sink.url_env, "")
        if not text:
            what = f"{place} is not set."
            raise SettingsError(what, f"Set it to {FORM}.")
    else:
        place = f"{sink.label}.url_file: the file {sink.url_file}"
        text = secret_text(f"{sink.label}.url_file", Path(str(sink.url_file)))
    try:
        given = conninfo_to_dict(text)
    except psycopg.Error:
        what = f"{place} does not hold the address of a database."
        raise SettingsError(
            what, f"Its form is {FORM}."
        ) from None  # the error repeats a part of the address
    return {**DEFAULTS, **{name: value for name, value in given.items() if value is not None}}


def place_of(declared: Export | Import) -> Place:
    """The table in the database, as lineage names it."""
    address = address_of(declared)
    server = f"postgres://{address.get('host', 'localhost')}:{address.get('port', '5432')}"
    return Place(server, f"{address.get('dbname', address.get('user', ''))}.{declared.table}")


def shown(address: dict[str, Any]) -> str:
    """An address for messages: host, port and database."""
    host, port = address.get("host", "localhost"), address.get("port", "5432")
    return f"{host}:{port}/{address.get('dbname', address.get('user', ''))}"


def connect(sink: Export | Import, **others: Any) -> psycopg.Connection[Any]:
    """Connect to the database of a sink or an import, in autocommit mode.

    Args:
        sink: the sink or the import.
        others: parameters that take precedence over those of the address.

    Raises:
        SettingsError: the address cannot be read.
        DatabaseError: the database does not answer, or refuses the connection.
    """
    import psycopg

    address = address_of(sink)
    connection = None
    try:
        connection = psycopg.connect(
            **{**address, "application_name": f"lakehouse {sink.label}", **others},
            autocommit=True,
            prepare_threshold=None,  # a pooler may give each transaction another server process
        )
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET DateStyle = 'ISO, YMD'")
    except psycopg.Error as error:
        if connection is not None:
            connection.close()
        what = f"{sink.label}: no connection to {shown(address)}: {_text(error, address)}"
        raise DatabaseError(what) from None
    return connection


@contextlib.contextmanager
def explained(sink: Export | Import) -> Iterator[None]:
    """Raise the errors of PostgreSQL within the block as ours.

    Raises:
        DatabaseError: the error may pass: a lost connection, a restart, a deadlock, a full disk.
        SettingsError: any other error, such as a missing permission.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # Only the first line, because others may hold values of rows.
        said = _text(error, {})
        if is_temporary(error):
            message = f"{sink.label}: the database was lost or is busy: {said}"
            raise DatabaseError(message) from None
        message = f"{sink.label}: the database refuses: {said}"
        raise SettingsError(message) from None


def is_temporary(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed later, perhaps on another connection."""
    import psycopg

    if error.sqlstate is None:  # an error of the client, such as a lost connection
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate[:2] in MAY_PASS


def is_of_a_row(error: psycopg.Error) -> bool:
    """Whether an error is about the values of a row, so that others may be accepted."""
    import psycopg

    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return error.sqlstate[:2] in OF_A_ROW


def _text(error: psycopg.Error, address: dict[str, Any]) -> str:
    lines = (error.diag.message_primary or str(error)).strip().splitlines() or [
        type(error).__name__
    ]
    text = lines[0].rstrip(".")
    password = address.get("password")
    return f"{text.replace(password, '***') if password else text}."
