"""Tests that systemd receives the state, and that nothing is sent without systemd."""

import socket
import tempfile
from pathlib import Path

import pytest

from lakehouse.runtime.notify import READY, notify


@pytest.mark.parametrize("form", ["path", "abstract"])
def test_the_state_reaches_the_socket_of_systemd(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        place = str(Path(folder, "notify"))
        systemd.bind(place if form == "path" else f"\0{place}")
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", place if form == "path" else f"@{place}")
        notify(READY)
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify(READY)
