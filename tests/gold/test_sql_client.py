"""Tests what the client of the SQL endpoint refuses before it sends a password."""

import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr

from gold.sql_client import connect, credentials, is_loopback
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
