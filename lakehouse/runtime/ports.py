"""Finds free ports on this machine, and checks that configured ones are free."""

import secrets
import socket
from collections.abc import Container

from filelock import FileLock

from lake.settings.ports import (
    DEFAULTS,
    FIRST,
    HOMES,
    LAST,
    expected_port,
    keep_ports,
    known_ports,
    ports_of_others,
)
from lake.settings.settings import LakeSettings, with_ports
from pulsar_spark.errors import SettingsError


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


def choose_ports(settings: LakeSettings, *, broker: bool) -> LakeSettings:
    """Choose the ports that no setting names, and keep the choice in the home.

    Called before a command serves. Ports that the home has chosen before stay, so that clients stay
    connected. New ones are free now, and no other home of this user has them, even if nothing runs
    there at the moment.

    Args:
        settings: the settings.
        broker: whether the command starts the embedded broker.

    Returns:
        The settings with the ports.

    Raises:
        LakehouseError: the file with the ports is torn.
    """
    kinds = [each for each in settings.unnamed_ports if broker or each in ("sql", "console")]
    home, cache = settings.home_dir, settings.cache_dir
    (cache / HOMES).mkdir(parents=True, exist_ok=True)
    with FileLock(cache / HOMES / ".lock"):  # two projects may start at the same time
        known = known_ports(home)
        others = ports_of_others(home, cache)
        chosen = dict(known)
        for kind in kinds:
            if kind not in chosen:
                taken = {*others, *chosen.values()}
                port = expected_port(kind, home, others)
                while not _is_usable(port, taken):
                    port = free_port()
                chosen[kind] = port
        if chosen != known:
            keep_ports(home, cache, chosen)
    return with_ports(settings, {**_expected(settings), **chosen})


def _expected(settings: LakeSettings) -> dict[str, int]:
    others = ports_of_others(settings.home_dir, settings.cache_dir)
    return {kind: expected_port(kind, settings.home_dir, others) for kind in DEFAULTS}


def _is_usable(port: int, taken: Container[int]) -> bool:
    """Whether nothing listens on a port, and no other home has chosen it."""
    if port in taken:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def with_own_sql_port(settings: LakeSettings) -> LakeSettings:
    """Copy the settings with a free SQL port, for an endpoint that a command starts for itself.

    The configured port stays free for `lakehouse up`, which may start in the meantime.
    """
    return settings.model_copy(update={"sql_port": free_port()})
