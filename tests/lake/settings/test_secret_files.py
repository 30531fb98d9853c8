"""Tests the permissions and the content of files that hold a secret."""

from pathlib import Path

import pytest

from lake.settings.secret_files import require_private, secret_text
from pulsar_spark.errors import SettingsError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "secret"
    found.write_text(" with spaces \r\n")
    found.chmod(0o600)
    return found


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_a_file_that_only_owner_and_group_can_read_is_accepted(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert secret_text("LAKEHOUSE_X_FILE", file) == " with spaces "


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o620, 0o660])
def test_a_file_that_others_can_access_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(SettingsError, match=rf"LAKEHOUSE_X_FILE: .*mode {mode:o}.*chmod 600"):
        require_private("LAKEHOUSE_X_FILE", file)


def test_an_absent_or_empty_file_is_refused(file: Path) -> None:
    with pytest.raises(SettingsError, match="LAKEHOUSE_X_FILE: the file .*none does not exist"):
        secret_text("LAKEHOUSE_X_FILE", file.with_name("none"))
    file.write_text("\n")
    with pytest.raises(SettingsError, match="is empty"):
        secret_text("LAKEHOUSE_X_FILE", file)


def test_a_file_that_is_no_text_is_refused_without_showing_it(file: Path) -> None:
    file.write_bytes(b"secret \xff")
    with pytest.raises(SettingsError, match="LAKEHOUSE_X_FILE: .* is not a text in UTF-8") as error:
        secret_text("LAKEHOUSE_X_FILE", file)
    assert error.value.__cause__ is None


def test_a_home_folder_may_be_abbreviated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(file.parent))
    assert require_private("LAKEHOUSE_X_FILE", Path("~/secret")) == file
