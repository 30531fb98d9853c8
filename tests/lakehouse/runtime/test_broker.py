"""Tests what the embedded broker refuses, and how a left-over broker is found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from live_shop import until

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.runtime.broker import (
    Broker,
    broker_answers,
    is_local,
    left_over_broker,
    start_broker,
)
from lakehouse.runtime.ports import free_port
from pulsar_spark.errors import BrokerError, SettingsError


def at(home: Path, url: str, admin: str) -> LakeSettings:
    return load_settings(home=home, pulsar_url=url, pulsar_admin_url=admin)


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    ports = free_port(), free_port()
    return at(tmp_path, f"pulsar://127.0.0.1:{ports[0]}", f"http://localhost:{ports[1]}")


def test_only_addresses_of_this_machine_can_be_the_embedded_brokers(tmp_path: Path) -> None:
    assert is_local(at(tmp_path, "pulsar://[::1]:6650", "http://localhost:8080"))
    for url, admin in (
        ("pulsar://broker:6650", "http://localhost:8080"),
        ("pulsar://127.0.0.1:6650", "http://broker:8080"),
    ):
        elsewhere = at(tmp_path, url, admin)
        assert not is_local(elsewhere)
        with pytest.raises(SettingsError, match="use 127.0.0.1 in both, or start your own"):
            start_broker(elsewhere)


def test_an_address_without_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has no port. Set LAKEHOUSE_PULSAR_ADMIN_URL"):
        start_broker(at(tmp_path, f"pulsar://127.0.0.1:{free_port()}", "http://127.0.0.1"))


def test_a_broker_that_does_not_start_says_why(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java that ends at once stands for a broker that cannot start."""
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\necho '12:00 ERROR no room'\necho 'Caused by: x.Full: disk'\nexit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setattr("lakehouse.runtime.broker.find_java", lambda: java)
    monkeypatch.setattr("lakehouse.runtime.broker.fetch_jars", lambda *_: tmp_path)
    monkeypatch.setattr("lakehouse.runtime.broker.broker_cache", lambda _: None)
    with pytest.raises(BrokerError, match="no room; Caused by: x.Full: disk"):
        start_broker(settings)
    assert not broker_answers(settings)
    assert left_over_broker(settings) is None


def test_a_left_over_broker_is_a_process_that_runs_pulsar(settings: LakeSettings) -> None:
    record = settings.home_dir / "run" / "broker.json"
    record.parent.mkdir(parents=True)
    assert left_over_broker(settings) is None
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "pulsar"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        # The kernel shows the arguments of a process just after it has started.
        until(Path(f"/proc/{process.pid}/cmdline").read_bytes, "the arguments of the process")
        record.write_text(json.dumps({"pid": process.pid}))
        found = left_over_broker(settings)
        assert found == Broker(process.pid, record)
        found.stop()
        assert not record.exists()
    record.write_text(json.dumps({"pid": process.pid}))
    assert left_over_broker(settings) is None, "it has ended"
    command[-1] = "another"
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        record.write_text(json.dumps({"pid": process.pid}))
        assert left_over_broker(settings) is None, "another program has its number now"
        process.communicate()
