"""Tests the file of users who may connect to the SQL endpoint."""

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lake.settings.settings import LakeSettings, load_settings
from lakehouse.sql.users import (
    add_user,
    change_role,
    generated_password,
    read_users,
    remove_user,
    users_file,
    users_without_role,
)
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
    _, rounds, salt, stored = read_users(settings)["anna"].password.split("$")
    assert int(rounds) >= 600_000
    right = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt.encode(), int(rounds))
    assert base64.b64decode(stored) == right
    add_user(settings, "bert", PASSWORD)
    assert read_users(settings)["bert"].password.split("$")[2:] != [salt, stored]


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


def test_new_users_beyond_loopback_are_readers_and_former_ones_stay_owners(
    settings: LakeSettings,
) -> None:
    assert add_user(settings, "anna", PASSWORD) == "owner"
    beyond = settings.model_copy(update={"sql_host": "0.0.0.0"})  # noqa: S104 - not listened on
    assert add_user(beyond, "bert", PASSWORD) == "reader"
    assert add_user(beyond, "cora", PASSWORD, "analyst") == "analyst"
    assert users_without_role(settings) == []
    former = users_file(settings).read_text().replace(":owner", "")
    users_file(settings).write_text(former)
    assert users_without_role(settings) == ["anna"]
    assert read_users(settings)["anna"].rights == "owner"
    assert add_user(beyond, "anna", PASSWORD) == "owner"  # a new password changes no role
    assert users_without_role(settings) == ["anna"]
    change_role(settings, "anna", "reader")
    assert {name: user.rights for name, user in read_users(settings).items()} == {
        **{"anna": "reader", "bert": "reader", "cora": "analyst"}
    }
    with pytest.raises(SettingsError, match="has no user 'dora'"):
        change_role(settings, "dora", "owner")


def test_an_unknown_role_is_refused(settings: LakeSettings) -> None:
    add_user(settings, "anna", PASSWORD)
    file = users_file(settings)
    file.write_text(file.read_text().replace(":owner", ":admin"))
    with pytest.raises(SettingsError, match="line 1 of"):
        read_users(settings)


def test_a_generated_password_is_kept_and_needs_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    password = generated_password(Path("~/password"))
    assert generated_password(tmp_path / "password") == password
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="absent/password cannot be written .*Make its folder"):
        generated_password(tmp_path / "absent" / "password")


def test_a_file_that_names_a_user_twice_or_is_no_text_is_refused(settings: LakeSettings) -> None:
    add_user(settings, "anna", PASSWORD, "reader")
    file = users_file(settings)
    line = file.read_bytes()
    file.write_bytes(line + line.replace(b"reader", b"owner"))
    with pytest.raises(SettingsError, match="line 2 of .* has the user 'anna' a second time"):
        read_users(settings)
    file.write_bytes(line + b"\xff:x\n")
    with pytest.raises(SettingsError, match="line 2 of .* is not a user"):
        read_users(settings)


def test_commands_at_the_same_time_lose_no_change(settings: LakeSettings) -> None:
    names = [f"user{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: add_user(settings, name, PASSWORD), names))
    assert sorted(read_users(settings)) == names
