"""Tests what the client of the SQL endpoint refuses before it sends a password, and its errors."""

import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr
from pyhive import hive

from gold.sql_client import (
    SqlError,
    connect,
    credentials,
    endpoint_running,
    is_loopback,
    query_endpoint,
)
from lake.settings.settings import LakeSettings, load_settings
from pulsar_spark.errors import SettingsError

PASSWORD = "a dozen letters"  # noqa: S105 - nobody's  # pragma: allowlist secret


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.0.0.2", True), ("localhost", True), ("::1", True)),
        *(("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False)),  # noqa: S104
        *(("192.0.2.1", False), ("no-such-host.invalid", False), ("", False)),
    ],
)
def test_loopback_is_what_other_machines_cannot_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_password_is_given_only_once_and_not_in_a_settings_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakehouse.toml").write_text(f"sql_password = '{PASSWORD}'\n")
    with pytest.raises(SettingsError, match="file named by sql_password_file") as error:
        load_settings()
    assert PASSWORD not in "".join(traceback.format_exception(error.value))
    (tmp_path / "lakehouse.toml").unlink()
    monkeypatch.setenv("LAKEHOUSE_SQL_PASSWORD", PASSWORD)
    given = load_settings(home=tmp_path)
    assert PASSWORD not in repr(given)
    assert credentials(given) == ("lakehouse", PASSWORD)
    with pytest.raises(SettingsError, match="each hold a password"):
        credentials(given.model_copy(update={"sql_password_file": tmp_path / "x"}))


def test_a_password_leaves_the_machine_only_over_tls(settings: LakeSettings) -> None:
    update = {"sql_host": "192.0.2.1", "sql_password": SecretStr(PASSWORD)}
    with pytest.raises(SettingsError, match="192.0.2.1 as plain text.*LAKEHOUSE_SQL_TLS"):
        connect(settings.model_copy(update=update))


def test_a_refused_session_and_a_lost_connection_are_errors_for_people(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SqlError, match=r"127\.0\.0\.1:1 does not answer"):
        query_endpoint(settings.model_copy(update={"sql_port": 1}), "select 1")
    monkeypatch.setattr("gold.sql_client.TSocket.open", lambda _: None)

    def refuse(**_: object) -> None:
        raise hive.OperationalError(SimpleNamespace(status=SimpleNamespace(errorMessage=said)))

    monkeypatch.setattr("gold.sql_client.hive.Connection", refuse)
    said = "lakehouse.Access$AccessDenied: The role 'reader' may not open more than 100 sessions"
    with pytest.raises(SqlError, match="^The role 'reader' may not open"):
        query_endpoint(settings, "select 1")
    said = ""
    with pytest.raises(SqlError, match="gave no reason"):
        endpoint_running(settings)
