"""Tests that settings, logs and the support bundle hold no secret, payload or row."""

import datetime as dt
import io
import json
import zipfile
from pathlib import Path

import pytest
import structlog
from quiet_lake import UTC, QuietLake
from served_console import quiet_settings

from lake.observe.logs import configure_logs
from lakehouse.console.support import (
    OWN_LOG,
    log_end,
    log_names,
    settings_shown,
    support_bundle,
)
from lakehouse.console.watcher import Sample
from lakehouse.operate.doctor import Finding
from pulsar_spark.log_masking import hide

SECRETS = {
    "LAKEHOUSE_PULSAR_TOKEN": "eyJhbGciOi.abcdefgh.ijklmn",  # pragma: allowlist secret
    "LAKEHOUSE_SQL_PASSWORD": "sql-hunter22",  # pragma: allowlist secret
    "LAKEHOUSE_PSEUDONYM_SECRET": "0123456789abcdef0123456789abcdef",  # pragma: allowlist secret
    "LAKEHOUSE_CONSOLE_TOKEN": "console-token-hunter22",  # pragma: allowlist secret
    # pragma: allowlist nextline secret
    "LAKEHOUSE_PULSAR_OAUTH2_ISSUER_URL": "https://me:issuer-hunter22@issuer/x",
}
PAYLOAD = "payload-of-ann"


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuietLake:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    found = QuietLake(quiet_settings(tmp_path / "home"))
    found.land("users", [PAYLOAD.encode()], dt.datetime.now(UTC), key=PAYLOAD)
    found.refuse({"topic": "users", "reason": "r", "payload": PAYLOAD.encode(), "key": PAYLOAD})
    logs = found.settings.home_dir / "logs"
    logs.mkdir(parents=True)
    (logs / "broker.log").write_text("started with token=abcdefgh\n" * 3)
    (logs / "notes.txt").write_text("not a log")
    return found


def assert_no_secret(text: str) -> None:
    for secret in (*SECRETS.values(), "hunter22", "abcdefgh", PAYLOAD):
        assert secret not in text


def test_settings_are_shown_with_their_secrets_hidden(quiet: QuietLake) -> None:
    shown = {each.name: each for each in settings_shown(quiet.settings)}
    assert shown["pulsar_token"].value == "***"
    assert shown["console_token"].is_given
    assert shown["pulsar_oauth2_issuer_url"].value == "https://***@issuer/x"
    assert shown["console_port"].value == str(quiet.settings.console_port)
    assert not shown["trigger"].is_given
    assert shown["trigger"].description
    assert_no_secret(str(shown))


def test_logs_are_masked_and_only_those_of_the_home_are_read(quiet: QuietLake) -> None:
    configure_logs()
    hide("a-secret-known-elsewhere")
    given = {"password": "x1234", "why": "a-secret-known-elsewhere"}  # pragma: allowlist secret
    structlog.get_logger().warning("it failed", **given)
    assert log_names(quiet.settings) == [OWN_LOG, "broker.log"]
    assert log_end(quiet.settings, "broker.log", 2) == ["started with token=***"] * 2
    [line] = [line for line in log_end(quiet.settings, OWN_LOG) if "it failed" in line]
    assert "password=***" in line
    assert "why=***" in line
    for name in ("notes.txt", "../lake", "/etc/passwd", ""):
        assert log_end(quiet.settings, name) == []


def test_the_bundle_holds_what_helps_and_nothing_else(quiet: QuietLake) -> None:
    findings = [Finding("disk", "warn", "little is free", "Free some.")]
    content = support_bundle(quiet.lake, Sample(), findings)
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        texts = {name.partition("/")[2]: bundle.read(name).decode() for name in bundle.namelist()}
    assert texts.keys() == {
        *("versions.json", "packages.txt", "settings.json", "checks.json", "streams.json"),
        *("tables.json", "topics.toml", "log.txt", "logs/broker.log"),
    }
    assert json.loads(texts["checks.json"])[0]["found"] == "little is free"
    assert "[topics.users]" in texts["topics.toml"]
    assert "deltalake==" in texts["packages.txt"]
    for text in texts.values():
        assert_no_secret(text)
