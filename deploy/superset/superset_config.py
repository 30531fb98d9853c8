"""Logs Superset in at the SQL endpoint, with the settings that the lakehouse's own clients use.

`serve.py` starts Superset with this file. A Superset of your own can import `DB_CONNECTION_MUTATOR`
from it. The settings come from the environment: `LAKEHOUSE_SQL_HOST`, `_PORT`, `_USER`,
`_PASSWORD_FILE` or `_PASSWORD`, `_TLS` and `_TLS_TRUST_CERTS_FILE`. Files are read for each
connection, so the password is never in Superset's database, and a new one is used at once.
"""

import os
import ssl
from pathlib import Path
from typing import Any

from pyhive import hive
from thrift.transport.TSocket import TSocket
from thrift.transport.TSSLSocket import TSSLSocket
from thrift_sasl import TSaslClientTransport

DATABASE = "hive://127.0.0.1:10000/gold"  # of dashboard/databases/Lakehouse.yaml
SCHEMA = "gold"
ANY_PASSWORD = "none"  # noqa: S105 - an endpoint that asks for none takes any  # pragma: allowlist secret


def DB_CONNECTION_MUTATOR(
    url: Any, params: dict[str, Any], *_: object
) -> tuple[Any, dict[str, Any]]:
    """Let the dashboard's database connect with `connect`; leave other databases as they are.

    Superset calls this before each connection, also with a user name, its security manager and what
    asks. Returns the address and the arguments for `sqlalchemy.create_engine`.
    """
    if str(url) != DATABASE:
        return url, params
    return url, {**params, "creator": connect}


def connect() -> Any:
    """Connect to the endpoint; PyHive by itself knows no TLS there."""
    host = _setting("HOST", "127.0.0.1")
    port = int(_setting("PORT", "10000"))
    who = {"host": host, "username": _setting("USER", "superset"), "password": _password()}
    if _setting("TLS", "false") == "true":
        trusted = _setting("TLS_TRUST_CERTS_FILE", "") or None
        context = ssl.create_default_context(cafile=trusted)
        socket = TSSLSocket(host, port, ssl_context=context)
    else:
        socket = TSocket(host, port)
    transport = TSaslClientTransport(
        lambda: hive.get_pure_sasl_client(sasl_auth="PLAIN", **who), "PLAIN", socket
    )
    return hive.Connection(username=who["username"], database=SCHEMA, thrift_transport=transport)


def _setting(name: str, default: str) -> str:
    return os.environ.get(f"LAKEHOUSE_SQL_{name}", default)


def _password() -> str:
    if file := _setting("PASSWORD_FILE", ""):
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    return _setting("PASSWORD", ANY_PASSWORD)
