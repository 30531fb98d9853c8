"""The users who may log in to the SQL endpoint, as a file of hashed passwords.

A line is `NAME:pbkdf2_sha256$ROUNDS$SALT$HASH`. The hash has Django's format, and every Java can
check PBKDF2. `PasswordFile.java` reads the file for each connection, so a change needs no restart.
"""

import base64
import hashlib
import re
import secrets
from pathlib import Path

from lake.durable import PRIVATE, write_durably
from lake.settings.secret_files import require_private
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

ROUNDS = 600_000  # from OWASP's password storage cheat sheet, for PBKDF2 with SHA-256
SHORTEST = 12
NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
SETTING = "LAKEHOUSE_SQL_USERS_FILE"


def users_file(settings: LakeSettings) -> Path:
    """The file that holds the users and their hashed passwords."""
    return (settings.sql_users_file or settings.home_dir / "sql-users").expanduser()


def read_users(settings: LakeSettings) -> dict[str, str]:
    """The hashed passwords by user name, empty if there is no file yet.

    Raises:
        SettingsError: other users may read the file, or a line is not a valid user.
    """
    file = users_file(settings)
    if not file.exists():
        return {}
    lines = require_private(SETTING, file).read_text().splitlines()
    users = dict(line.partition(":")[::2] for line in lines if line)
    for number, stored in enumerate(users.values(), 1):
        if not re.fullmatch(r"pbkdf2_sha256\$\d+\$[^$]+\$[\w+/=]+", stored, re.ASCII):
            what = (
                f"{SETTING}: user {number} of {file} has no password hash in the form that "
                "`lakehouse sql-user add` writes."
            )
            raise SettingsError(what, "Remove the line and add the user again.")
    return users


def add_user(settings: LakeSettings, name: str, password: str) -> None:
    """Let a user log in with this password from the next connection on; replaces an older one.

    Raises:
        SettingsError: the name is not allowed, or the password is too short or not printable.
    """
    if not NAME.fullmatch(name):
        message = f"'{name}' is not a valid user name. Use up to 64 letters, digits and . _ @ -"
        raise SettingsError(message)
    if len(password) < SHORTEST or not password.isprintable():
        message = f"A password needs at least {SHORTEST} characters, all of them printable."
        raise SettingsError(message)
    _write(settings, read_users(settings) | {name: hashed(password)})


def remove_user(settings: LakeSettings, name: str) -> None:
    """Stop a user from logging in. Open connections stay open.

    Raises:
        SettingsError: there is no such user.
    """
    users = read_users(settings)
    if users.pop(name, None) is None:
        message = (
            f"{users_file(settings)} has no user '{name}'. `lakehouse sql-user list` shows the "
            "users."
        )
        raise SettingsError(message)
    _write(settings, users)


def hashed(password: str) -> str:
    """The hash of a password, with a new salt, as the file stores it."""
    salt = secrets.token_urlsafe(16)
    found = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), ROUNDS)
    return f"pbkdf2_sha256${ROUNDS}${salt}${base64.b64encode(found).decode()}"


def _write(settings: LakeSettings, users: dict[str, str]) -> None:
    file = users_file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{name}:{stored}\n" for name, stored in users.items())
    write_durably(file, "".join(lines), mode=PRIVATE)
