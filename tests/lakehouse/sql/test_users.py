"""Tests the file of users who may connect to the SQL endpoint."""

import base64
import hashlib
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.sql.users import add_user, read_users, remove_user, users_file
from pulsar_spark.errors import SettingsError

PASSWORD = "a dozen letters"  # noqa: S105 - nobody's  # pragma: allowlist secret


@pytest.fixture
def settings(tmp_path: Path) -> LakeSettings:
    return load_settings(home=tmp_path)


def test_a_password_is_stored_as_a_salted_hash_that_only_the_owner_can_read(
    settings: LakeSettings,
) -> None:
    add_user(settings, "anna", PASSWORD)
    file = users_file(settings)
    assert file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in file.read_text()
    _, rounds, salt, stored = read_users(settings)["anna"].split("$")
    assert int(rounds) >= 600_000
    right = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt.encode(), int(rounds))
    assert base64.b64decode(stored) == right
    add_user(settings, "bert", PASSWORD)
    assert read_users(settings)["bert"].split("$")[2:] != [salt, stored]


def test_a_removed_user_is_gone_and_an_unknown_one_is_refused(settings: LakeSettings) -> None:
    for name in ("anna", "bert"):
        add_user(settings, name, PASSWORD)
    remove_user(settings, "anna")
    assert list(read_users(settings)) == ["bert"]
    with pytest.raises(SettingsError, match="has no user 'anna'"):
        remove_user(settings, "anna")


@pytest.mark.parametrize(
    ("name", "password", "says"),
    [
        ("anna", "eleven char", "at least 12 characters"),
        ("anna", "", "at least 12 characters"),
        ("anna", "a tabulator\tis none", "all of them printable"),
        *((name, PASSWORD, "is not a valid user name") for name in ("", "a:b", "a b", "ä", "-x")),
        ("a" * 65, PASSWORD, "up to 64"),
    ],
)
def test_an_invalid_user_is_refused(
    settings: LakeSettings, name: str, password: str, says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        add_user(settings, name, password)
    assert not users_file(settings).exists()
