"""Ports of this machine."""

import secrets
import socket

from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

# Below those that systems give to outgoing connections, which could take one between two starts.
FIRST, LAST = 15_000, 32_000


def free_port() -> int:
    """A port of loopback that nothing listens on, for a server that has no setting for it."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def require_free_port(port: int, setting: str) -> None:
    """See that nothing listens on a loopback port.

    Raises:
        SettingsError: something does; names the setting to change.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            message = (
                f"Port {port} is in use on this machine ({error.strerror}). Stop what listens "
                f"there, or choose another port with {setting}."
            )
            raise SettingsError(message) from error


def with_own_sql_port(settings: LakeSettings) -> LakeSettings:
    """Settings for an SQL endpoint that one command starts for itself.

    The port that is set stays free for `lakehouse up`, which may start meanwhile.
    """
    return settings.model_copy(update={"sql_port": free_port()})
