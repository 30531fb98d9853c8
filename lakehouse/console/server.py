"""Serves the console in a thread of this process, and checks first who could reach it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import structlog
import uvicorn
from cryptography import x509

from gold.sql_client import is_loopback
from lake.observe.recent_batches import RECENT
from lake.settings.console import CONSOLE_TOKEN_ENV
from lake.settings.secret_files import secret_text
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake
from lakehouse.console.app import make_app
from lakehouse.console.guard import Access
from lakehouse.console.watcher import Watcher
from lakehouse.runtime.address import console_url
from lakehouse.runtime.certificates import key_and_certificates
from pulsar_spark.errors import SettingsError
from pulsar_spark.log_masking import hide

TOKEN_FILE = "LAKEHOUSE_CONSOLE_TOKEN_FILE"  # noqa: S105 - the name of the variable
CERTIFICATE = "LAKEHOUSE_CONSOLE_TLS_CERTIFICATE_FILE"
KEY = "LAKEHOUSE_CONSOLE_TLS_KEY_FILE"
SHORTEST_TOKEN = 16
STOP_SECONDS = 2  # for answers that are being sent; streams to open pages end at once
LOCAL = ("localhost", "127.0.0.1", "::1")

log = structlog.get_logger()


@contextlib.contextmanager
def console(lake: Lake) -> Iterator[str]:
    """Serve the console during the block.

    Yields:
        Its address.

    Raises:
        SettingsError: other machines could reach it without a token or without encryption, a
            setting or file is invalid, or the port is in use.
    """
    settings = lake.settings
    access = require_access(settings)
    listener = _listen(settings)
    watcher = Watcher(lake)
    config = uvicorn.Config(
        make_app(lake, watcher, access),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=15,
        ssl_certfile=settings.console_tls_certificate_file,
        ssl_keyfile=settings.console_tls_key_file,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="console", daemon=True
    )
    watcher.start()
    thread.start()
    try:
        with RECENT.remembering():
            yield console_url(settings)
    finally:
        watcher.stop()  # ends the streams to open pages
        server.should_exit = True
        thread.join(STOP_SECONDS + 3)
        listener.close()


def require_access(settings: LakeSettings) -> Access:
    """Check that the console is protected as required.

    Returns:
        Who may use it.

    Raises:
        SettingsError: see `console`.
    """
    token, names = _token(settings), _certified_names(settings)
    if not is_loopback(settings.console_host):
        lacks = []
        if token is None:
            lacks.append(f"does not ask for a token ({TOKEN_FILE})")
        if names is None:
            lacks.append(f"is not encrypted ({CERTIFICATE} and {KEY})")
        if lacks:
            what = (
                f"LAKEHOUSE_CONSOLE_HOST={settings.console_host} can be reached from other "
                f"machines, but the console {' and '.join(lacks)}."
            )
            raise SettingsError(what, "Set what is missing, or serve the console on loopback.")
    hosts = {settings.console_host.lower(), *LOCAL, *(names or ())}
    return Access(token, hosts, is_encrypted=names is not None)


def _token(settings: LakeSettings) -> str | None:
    if settings.console_token and settings.console_token_file:
        what = "console_token and console_token_file are the same."
        raise SettingsError(what, "Set one of them.")
    token, where = None, CONSOLE_TOKEN_ENV
    if settings.console_token:
        token = settings.console_token.get_secret_value()
    elif settings.console_token_file:
        token, where = secret_text(TOKEN_FILE, settings.console_token_file), TOKEN_FILE
    if token is None:
        return None
    if len(token) < SHORTEST_TOKEN:
        what = f"{where}: the token is shorter than {SHORTEST_TOKEN} characters."
        remedy = 'Make one with `python -c "import secrets; print(secrets.token_urlsafe(32))"`.'
        raise SettingsError(what, remedy)
    return hide(token)


def _certified_names(settings: LakeSettings) -> list[str] | None:
    """The hosts that the certificate names; None if the console is not encrypted."""
    certificate, key = settings.console_tls_certificate_file, settings.console_tls_key_file
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        what = f"TLS of the console needs {CERTIFICATE} and {KEY}."
        raise SettingsError(what, "Set both.")
    _, [own, *_] = key_and_certificates((CERTIFICATE, certificate), (KEY, key))
    try:
        found = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    named = found.get_values_for_type(x509.DNSName)
    addresses = found.get_values_for_type(x509.IPAddress)
    return [each.lower() for each in named] + [str(each) for each in addresses]


def _listen(settings: LakeSettings) -> socket.socket:
    """A socket that listens at the address of the settings."""
    host, port = settings.console_host, settings.console_port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        what = f"The console cannot be served on {host}:{port} ({error.strerror})."
        remedy = (
            "If `lakehouse up` or `lakehouse console` runs for this lake, it is there already. "
            "Otherwise choose another port with LAKEHOUSE_CONSOLE_PORT."
        )
        raise SettingsError(what, remedy) from error
