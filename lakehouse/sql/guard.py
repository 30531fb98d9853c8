"""Protects the SQL endpoint with HiveServer2's own password checks and TLS.

HiveServer2 takes certificates as a Java key store, and a custom password check as the name of a
Java class. The class must be on Java's own class path, because each statement changes the class
loader of its thread. Compiled files do not belong in git. Therefore our Java sources are compiled
into a folder of the class path when an endpoint starts. The compiler is Janino, which Spark uses
for its generated code, and it takes a second. A callback from Java to Python would have opened one
more port.
"""

import datetime as dt
import json
import secrets
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    pkcs12,
)

from gold.sql_client import is_loopback
from lake.settings.settings import LakeSettings
from lake.tables.java_source import compile_source
from lakehouse.runtime.certificates import key_and_certificates
from lakehouse.sql.users import SETTING as USERS_SETTING
from lakehouse.sql.users import read_users, users_file, users_without_role
from pulsar_spark.errors import SettingsError

RENEW_WITHIN = dt.timedelta(days=14)
# Each is compiled against those before it.
CLASSES = (
    *("Access", "Throttle", "PasswordFile", "LdapLogin", "PlanGuard", "Tls", "Audit"),
    "GuardedServer",
)
LOGIN = {
    "password": "lakehouse.PasswordFile",  # pragma: allowlist secret
    "ldap": "lakehouse.LdapLogin",
}  # pragma: allowlist secret
CERTIFICATE = "LAKEHOUSE_SQL_TLS_CERTIFICATE_FILE"
KEY = "LAKEHOUSE_SQL_TLS_KEY_FILE"


def require_guard(settings: LakeSettings) -> None:
    """Check that the endpoint is protected as required, and that its files are valid.

    Raises:
        SettingsError: other machines could reach the endpoint without a password or without
            encryption, or a setting or file is missing or invalid.
    """
    if not (settings.sql_allow_insecure or is_loopback(settings.sql_host)):
        _require_closed(settings)
    if settings.sql_authentication == "password" and not read_users(settings):
        what = f"{USERS_SETTING}: {users_file(settings)} has no user, so nobody could log in."
        raise SettingsError(what, "Add one with `lakehouse sql-user add NAME`.")
    if settings.sql_authentication == "ldap":
        _require_ldap(settings)
    if settings.sql_tls:
        read_certificates(settings)


def read_certificates(settings: LakeSettings) -> tuple[Any, list[x509.Certificate]]:
    """The private key and the certificate chain, which begins with the endpoint's own certificate.

    Raises:
        SettingsError: a file is missing or cannot be read, or key and certificate do not match.
    """
    certificate, key_file = settings.sql_tls_certificate_file, settings.sql_tls_key_file
    if certificate is None or key_file is None:
        what = f"LAKEHOUSE_SQL_TLS needs {CERTIFICATE} and {KEY} on the server."
        raise SettingsError(what, "Set both.")
    return key_and_certificates((CERTIFICATE, certificate), (KEY, key_file))


def guard_state(settings: LakeSettings) -> tuple[Literal["ok", "warn", "fail"], str, str]:
    """How the endpoint is protected, for `lakehouse doctor`: state, description and remedy.

    The state is `warn` if the certificate expires within `RENEW_WITHIN`, and `fail` if it has
    expired.

    Raises:
        SettingsError: see `require_guard`.
    """
    require_guard(settings)
    asks = f"authentication: {settings.sql_authentication}"
    if not settings.sql_tls:
        return "ok", f"{asks}, not encrypted", ""
    end = min(each.not_valid_after_utc for each in read_certificates(settings)[1])
    left = end - dt.datetime.now(dt.timezone.utc)
    found = f"{asks}, TLS with a certificate valid until {end:%Y-%m-%d}"
    if left > RENEW_WITHIN:
        return "ok", found, ""
    return "warn" if left > dt.timedelta() else "fail", found, "Renew it, then restart."


def hive_configuration(settings: LakeSettings) -> dict[str, str]:
    """The configuration that HiveServer2 reads while it starts, without TLS."""
    asks = settings.sql_authentication != "none"
    return {
        "hive.server2.thrift.bind.host": settings.sql_host,
        "hive.server2.thrift.port": str(settings.sql_port),
        "hive.server2.authentication": "CUSTOM" if asks else "NONE",
        "hive.server2.use.SSL": "false",
    }


def unlimited_users(settings: LakeSettings) -> tuple[str, str] | None:
    """Users who are owners although nobody made them so: description and remedy; None if none.

    For `lakehouse up` and `doctor`. The file of users may be from before there were roles.

    Raises:
        SettingsError: see `read_users`.
    """
    if settings.sql_authentication == "ldap" and not settings.sql_ldap_roles:
        found = "every user of the LDAP server may read, change and run everything"
        return found, "Give roles to LDAP groups with LAKEHOUSE_SQL_LDAP_ROLES."
    if settings.sql_authentication == "password" and (names := users_without_role(settings)):
        found = f"owners, because they were added before there were roles: {', '.join(names)}"
        return found, "Give each a role with `lakehouse sql-user role NAME ROLE`."
    return None


def write_key_store(settings: LakeSettings, folder: Path) -> tuple[Path, str]:
    """Write the endpoint's key and certificates as a key store, which is how Java takes them.

    Args:
        settings: names the PEM files.
        folder: a private folder.

    Returns:
        The file, which only its owner can read, and its password, which is new each time.

    Raises:
        SettingsError: a file is missing or cannot be read, or key and certificate do not match.
    """
    key, chain = read_certificates(settings)
    password = secrets.token_urlsafe(32)
    store = folder / "sql.p12"
    store.touch(mode=0o600)
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"sql", key, chain[0], chain[1:], BestAvailableEncryption(password.encode())
        )
    )
    return store, password


def prepare_authentication(jvm: Any, settings: LakeSettings, classes: Path) -> None:
    """Compile the classes that guard the endpoint, and say how they authenticate a connection.

    Args:
        jvm: py4j's view of the driver's JVM.
        settings: how to serve.
        classes: a folder on the JVM's class path, for the classes.
    """
    for name in CLASSES:
        compile_source(jvm, "lakehouse.sql", name, classes)
    login = LOGIN[settings.sql_authentication]
    jvm.Class.forName(login)  # else all logins would fail without a message
    jvm.System.setProperty("hive.server2.custom.authentication.class", login)
    if settings.sql_authentication == "password":
        jvm.System.setProperty("lakehouse.sql.users", str(users_file(settings).resolve()))
    else:
        jvm.lakehouse.LdapLogin.configure(
            settings.sql_ldap_url,
            settings.sql_ldap_user,
            settings.sql_ldap_group_base,
            json.dumps(settings.sql_ldap_roles),
        )


def _require_closed(settings: LakeSettings) -> None:
    lacks = []
    if settings.sql_authentication == "none":
        lacks.append("does not ask for a password (LAKEHOUSE_SQL_AUTHENTICATION=password)")
    if not settings.sql_tls:
        lacks.append("is not encrypted (LAKEHOUSE_SQL_TLS=true)")
    if lacks:
        what = (
            f"LAKEHOUSE_SQL_HOST={settings.sql_host} can be reached from other machines, but the "
            f"SQL endpoint {' and '.join(lacks)}."
        )
        remedy = (
            "Set what is missing or, on a protected network, LAKEHOUSE_SQL_ALLOW_INSECURE=true."
        )
        raise SettingsError(what, remedy)


def _require_ldap(settings: LakeSettings) -> None:
    if settings.sql_ldap_url is None or settings.sql_ldap_user is None:
        what = (
            "LAKEHOUSE_SQL_AUTHENTICATION=ldap needs LAKEHOUSE_SQL_LDAP_URL and "
            "LAKEHOUSE_SQL_LDAP_USER."
        )
        raise SettingsError(what, "Set both.")
    parts = urlsplit(settings.sql_ldap_url)
    encrypted = parts.scheme == "ldaps"
    if not (encrypted or settings.sql_allow_insecure or is_loopback(parts.hostname or "")):
        what = f"LAKEHOUSE_SQL_LDAP_URL: passwords would be sent to {parts.hostname} as plain text."
        remedy = "Use ldaps:// or, on a protected network, LAKEHOUSE_SQL_ALLOW_INSECURE=true."
        raise SettingsError(what, remedy)
