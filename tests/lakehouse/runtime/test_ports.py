"""Tests that ports are found and checked."""

import socket
from pathlib import Path

import pytest

from lake.settings.settings import load_settings
from lakehouse.runtime.ports import FIRST, LAST, free_port, require_free_port, with_own_sql_port
from pulsar_spark.errors import SettingsError


def test_a_free_port_can_be_used_and_is_no_outgoing_one() -> None:
    port = free_port()
    assert FIRST <= port < LAST
    require_free_port(port, "LAKEHOUSE_X_PORT")
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(SettingsError, match=f"Port {port} is in use.*LAKEHOUSE_X_PORT"),
    ):
        require_free_port(port, "LAKEHOUSE_X_PORT")


def test_a_command_leaves_the_configured_sql_port_free(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    own = with_own_sql_port(settings)
    assert own.sql_port != settings.sql_port
    assert own.model_copy(update={"sql_port": settings.sql_port}) == settings
