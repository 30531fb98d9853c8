"""Tests the settings refused before the SQL endpoint listens, and the file of its users."""

import base64
import datetime as dt
import hashlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from gold.sql_client import credentials, tls_context
from lake.settings.settings import LakeSettings, load_settings
from lakehouse import cli
from lakehouse.operate import doctor
from lakehouse.runtime.ports import free_port
from lakehouse.sql.connect import require_token
from lakehouse.sql.guard import read_certificates, require_guard, write_key_store
from lakehouse.sql.users import add_user, read_users, users_file
from pulsar_spark.errors import SettingsError

PASSWORD = "a dozen letters"  # noqa: S105 - nobody's  # pragma: allowlist secret
BEYOND = {"sql_host": "0.0.0.0"}  # noqa: S104 - what is refused here


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeSettings:
    monkeypatch.chdir(tmp_path)
    return load_settings(home=tmp_path)


class Outcome(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `lakehouse` with arguments and typed input."""

    def run_it(*arguments: str, types: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["lakehouse", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(types))
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Outcome(end.value.code, *capsys.readouterr())

    return run_it


def with_tls(settings: LakeSettings, folder: Path) -> LakeSettings:
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "sql.pem")
    (folder / "sql.key").touch(mode=0o600)
    (folder / "sql.key").write_bytes(issued.private_key_pem.bytes())
    return settings.model_copy(
        update={
            "sql_tls": True,
            "sql_tls_certificate_file": folder / "sql.pem",
            "sql_tls_key_file": folder / "sql.key",
        }
    )


def assert_refused(settings: LakeSettings, *says: str) -> None:
    with pytest.raises(SettingsError) as error:
        require_guard(settings)
    for words in says:
        assert words in str(error.value)
    assert next(doctor.sql(settings)).state == "fail"


def test_nothing_insecure_listens_beyond_loopback_unless_allowed(
    settings: LakeSettings, tmp_path: Path
) -> None:
    require_guard(settings)
    beyond = settings.model_copy(update=BEYOND)
    assert_refused(
        beyond,
        *("LAKEHOUSE_SQL_HOST=0.0.0.0", "LAKEHOUSE_SQL_AUTHENTICATION=password"),
        *("LAKEHOUSE_SQL_TLS=true", "LAKEHOUSE_SQL_ALLOW_INSECURE=true"),
    )
    add_user(beyond, "anna", PASSWORD)
    asking = beyond.model_copy(update={"sql_authentication": "password"})
    assert_refused(asking, "is not encrypted (LAKEHOUSE_SQL_TLS=true)")
    assert_refused(with_tls(beyond, tmp_path), "does not ask for a password")
    require_guard(with_tls(asking, tmp_path))
    require_guard(beyond.model_copy(update={"sql_allow_insecure": True}))


@pytest.mark.parametrize("command", ["up", "demo"])
def test_commands_refuse_an_insecure_endpoint_before_they_start_anything(
    settings: LakeSettings, monkeypatch: pytest.MonkeyPatch, run: Run, command: str
) -> None:
    monkeypatch.setenv("LAKEHOUSE_SQL_HOST", "0.0.0.0")  # noqa: S104
    monkeypatch.setenv("LAKEHOUSE_SQL_PORT", str(free_port()))
    outcome = run(command)
    assert outcome.code == 2
    assert "can be reached from other machines" in outcome.err
    assert not (settings.home_dir / "pulsar").exists()


def test_a_user_is_added_listed_and_removed(settings: LakeSettings, run: Run) -> None:
    done = run("--home", ".", "sql-user", "add", "anna", types=f"{PASSWORD}\n")
    assert (done.code, done.err) == (0, "")
    assert (
        run("--home", ".", "sql-user", "list", "--format", "csv").out == "user,role\nanna,owner\n"
    )
    run("--home", ".", "sql-user", "add", "bert", types=f"{PASSWORD}\n")
    given = run("--home", ".", "sql-user", "add", "ria", "--role", "reader", types=f"{PASSWORD}\n")
    assert "ria can log in as reader" in given.out
    assert "ria is now analyst" in run("--home", ".", "sql-user", "role", "ria", "analyst").out
    assert read_users(settings)["ria"].role == "analyst"
    assert run("--home", ".", "sql-user", "role", "ria", "admin").code == 2
    assert run("--home", ".", "sql-user", "remove", "ria").code == 0
    assert run("--home", ".", "sql-user", "remove", "anna").code == 0
    assert list(read_users(settings)) == ["bert"]
    assert "has no user 'anna'" in run("--home", ".", "sql-user", "remove", "anna").err
    assert {each.name for each in settings.home_dir.iterdir()} == {"sql-users", ".sql-users.lock"}


def test_a_password_is_generated_once_into_a_private_file(
    settings: LakeSettings, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    command = ("--home", ".", "sql-user", "add", "gold", "--generate", str(file))
    assert run(*command).code == 0
    first = file.read_text()
    assert len(first) > 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(*command).code == 0
    assert file.read_text() == first
    _, rounds, salt, stored = read_users(settings)["gold"].password.split("$")
    right = hashlib.pbkdf2_hmac("sha256", first.strip().encode(), salt.encode(), int(rounds))
    assert base64.b64decode(stored) == right


def test_secrets_that_others_may_read_are_not_used(settings: LakeSettings, tmp_path: Path) -> None:
    asking = settings.model_copy(update={"sql_authentication": "password"})
    assert_refused(asking, "has no user", "lakehouse sql-user add")
    add_user(asking, "anna", PASSWORD)
    require_guard(asking)
    for mode in (0o604, 0o620, 0o666):
        users_file(asking).chmod(mode)
        assert_refused(asking, f"mode {mode:o}", "chmod 600", "LAKEHOUSE_SQL_USERS_FILE")
    users_file(asking).chmod(0o640)
    require_guard(asking)
    users_file(asking).write_text("anna:md5$1$x$y\n")
    assert_refused(asking, "line 1", "is not a user")

    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o644)
    client = settings.model_copy(update={"sql_password_file": tmp_path / "password"})
    with pytest.raises(SettingsError, match="LAKEHOUSE_SQL_PASSWORD_FILE.*chmod 600") as error:
        credentials(client)
    assert PASSWORD not in str(error.value)
    (tmp_path / "password").chmod(0o600)
    assert credentials(client) == ("lakehouse", PASSWORD)
    (tmp_path / "password").write_text("\n")
    with pytest.raises(SettingsError, match="is empty"):
        credentials(client)


def test_unsuitable_certificates_are_reported(settings: LakeSettings, tmp_path: Path) -> None:
    served = with_tls(settings, tmp_path)
    key, _ = read_certificates(served)
    assert_refused(settings.model_copy(update={"sql_tls": True}), "CERTIFICATE_FILE", "KEY_FILE")
    other = trustme.CA().private_key_pem.bytes()
    for name, content in (("locked.key", encrypted(key)), ("other.key", other)):
        (tmp_path / name).write_bytes(content)
    for field, name, says in (
        ("certificate", "none.pem", "No such file"),
        ("certificate", "sql.key", "cannot be read as PEM certificates"),
        ("key", "none.key", "does not exist"),
        ("key", "sql.pem", "cannot be read as a PEM key"),
        ("key", "locked.key", "without a passphrase"),
        ("key", "other.key", "does not belong to the first"),
    ):
        for file in tmp_path.glob("*.*"):
            file.chmod(0o600)
        unfit = served.model_copy(update={f"sql_tls_{field}_file": tmp_path / name})
        assert_refused(unfit, f"LAKEHOUSE_SQL_TLS_{field.upper()}_FILE", name, says)
    (tmp_path / "sql.key").chmod(0o644)
    assert_refused(served, "LAKEHOUSE_SQL_TLS_KEY_FILE", "chmod 600")
    with pytest.raises(SettingsError, match="TRUST_CERTS_FILE: .*sql.key cannot be read"):
        tls_context(tmp_path / "sql.key")


def encrypted(key: Any) -> bytes:
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    found: bytes = key.private_bytes(serialization.Encoding.PEM, *form)
    return found


def test_the_key_store_is_private_and_has_a_new_password_each_time(
    settings: LakeSettings, tmp_path: Path
) -> None:
    served = with_tls(settings, tmp_path)
    (_, first), (store, password) = (write_key_store(served, tmp_path) for _ in range(2))
    assert store.stat().st_mode & 0o777 == 0o600
    assert password != first
    _, certificate, _ = pkcs12.load_key_and_certificates(store.read_bytes(), password.encode())
    assert certificate == read_certificates(served)[1][0]


@pytest.mark.parametrize(("days", "state"), [(-1, "fail"), (13, "warn"), (15, "ok")])
def test_the_doctor_reports_when_a_certificate_expires(
    settings: LakeSettings, tmp_path: Path, days: int, state: str
) -> None:
    end = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=days, hours=1)
    issued = trustme.CA().issue_cert("localhost", not_after=end)
    served = with_tls(settings, tmp_path)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "sql.pem")
    (tmp_path / "sql.key").write_bytes(issued.private_key_pem.bytes())
    [found] = doctor.sql(served)
    assert found.state == state
    assert f"{end:%Y-%m-%d}" in found.found
    assert bool(found.remedy) == (state != "ok")


def test_ldap_needs_a_server_a_name_and_encryption(settings: LakeSettings) -> None:
    asking = settings.model_copy(update={"sql_authentication": "ldap"})
    assert_refused(asking, "LAKEHOUSE_SQL_LDAP_URL", "LAKEHOUSE_SQL_LDAP_USER")
    named = {"sql_ldap_url": "ldap://192.0.2.1", "sql_ldap_user": "uid=%s,dc=org"}
    plain = asking.model_copy(update=named)
    assert_refused(plain, "192.0.2.1 as plain text", "ldaps://")
    require_guard(plain.model_copy(update={"sql_ldap_url": "ldaps://192.0.2.1"}))
    for unfit in ("uid=bea,dc=org", "%s", "%s@", "uid=%s:ou=x,dc=org"):
        with pytest.raises(SettingsError, match="sql_ldap_user"):
            load_settings(sql_ldap_user=unfit)


def test_without_a_token_spark_connect_is_refused_beside_roles(
    settings: LakeSettings, tmp_path: Path
) -> None:
    served = settings.model_copy(update={"connect_port": 15002})
    assert require_token(served) is None
    asking = served.model_copy(update={"sql_authentication": "password"})
    with pytest.raises(SettingsError, match="LAKEHOUSE_CONNECT_TOKEN_FILE"):
        require_token(asking)
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("of the owners\n")
    assert require_token(asking.model_copy(update={"connect_token_file": tmp_path / "token"})) == (
        "of the owners"
    )


def test_the_doctor_warns_of_users_who_are_owners_because_they_have_no_role(
    settings: LakeSettings,
) -> None:
    asking = settings.model_copy(update={"sql_authentication": "password"})
    add_user(asking, "anna", PASSWORD)
    assert [each.state for each in doctor.sql(asking)] == ["ok"]
    users_file(asking).write_text(users_file(asking).read_text().replace(":owner", ""))
    found = list(doctor.sql(asking))
    assert [each.state for each in found] == ["ok", "warn"]
    assert "anna" in found[1].found
    assert "lakehouse sql-user role" in found[1].remedy
    ldap = {"sql_authentication": "ldap", "sql_ldap_url": "ldaps://a", "sql_ldap_user": "u=%s,o=x"}
    found = list(doctor.sql(settings.model_copy(update=ldap)))
    assert found[1].state == "warn"
    assert "LAKEHOUSE_SQL_LDAP_ROLES" in found[1].remedy
