"""Finds free ports on this machine, and checks that configured ones are free."""

import secrets
import socket

from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

# Below the ephemeral range: an outgoing connection could take such a port between two starts.
FIRST, LAST = 15_000, 32_000


def free_port() -> int:
    """A free loopback port, for a server whose port is not a setting."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def require_free_port(port: int, setting: str) -> None:
    """Check that nothing listens on a loopback port.

    Raises:
        SettingsError: the port is in use. Names the setting to change.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            what = f"Port {port} is in use on this machine ({error.strerror})."
            remedy = f"Stop the program that uses it, or choose another port with {setting}."
            raise SettingsError(what, remedy) from error


def with_own_sql_port(settings: LakeSettings) -> LakeSettings:
    """Copy the settings with a free SQL port, for an endpoint that a command starts for itself.

    The configured port stays free for `lakehouse up`, which may start in the meantime.
    """
    return settings.model_copy(update={"sql_port": free_port()})
