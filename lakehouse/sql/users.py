"""The users who may log in to the SQL endpoint, as a file of hashed passwords and roles.

A line is `NAME:pbkdf2_sha256$ROUNDS$SALT$HASH:ROLE`. The hash has Django's format, and every Java
can check PBKDF2. A line without a role was written before there were roles; its user is an owner.
`Access.java` reads the file for each connection and each call, so a change needs no restart.
"""

import base64
import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

from filelock import FileLock

from gold.sql_client import is_loopback
from lake.durable import PRIVATE, write_durably
from lake.settings.roles import Role
from lake.settings.secret_files import require_private, secret_text
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import SettingsError

ROUNDS = 600_000  # from OWASP's password storage cheat sheet, for PBKDF2 with SHA-256
SHORTEST = 12
NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
SETTING = "LAKEHOUSE_SQL_USERS_FILE"
LINE = re.compile(
    rf"(pbkdf2_sha256\$\d+\$[^$:]+\$[\w+/=]+)(?::({'|'.join(get_args(Role))}))?", re.ASCII
)


class User(NamedTuple):
    """A line of the file without its name. The role is None if the line is from before roles."""

    password: str
    role: Role | None

    @property
    def rights(self) -> Role:
        """The role whose rights the user has."""
        return self.role or "owner"


def users_file(settings: LakeSettings) -> Path:
    """The file that holds the users, their hashed passwords and their roles."""
    return (settings.sql_users_file or settings.home_dir / "sql-users").expanduser()


def read_users(settings: LakeSettings) -> dict[str, User]:
    """The users by name, empty if there is no file yet.

    Raises:
        SettingsError: other users may read the file, or a line is not a valid user, or one that was
            there before.
    """
    file = users_file(settings)
    if not file.exists():
        return {}
    users = {}
    text = require_private(SETTING, file).read_text("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        name, _, stored = line.partition(":")
        match = LINE.fullmatch(stored)
        if match is None:
            what = (
                f"{SETTING}: line {number} of {file} is not a user in the form that "
                "`lakehouse sql-user add` writes."
            )
            raise SettingsError(what, "Remove the line and add the user again.")
        if name in users:
            what = f"{SETTING}: line {number} of {file} has the user '{name}' a second time."
            raise SettingsError(what, "Remove one of the lines. The endpoint uses the first one.")
        users[name] = User(match[1], match[2])  # type: ignore[arg-type]
    return users


def users_without_role(settings: LakeSettings) -> list[str]:
    """The users from before there were roles, who are owners.

    Raises:
        SettingsError: see `read_users`.
    """
    return [name for name, user in read_users(settings).items() if user.role is None]


def add_user(settings: LakeSettings, name: str, password: str, role: Role | None = None) -> Role:
    """Let a user log in with this password from the next connection on; replaces an older one.

    Args:
        settings: where the file is.
        name: the name of the user.
        password: what the user will log in with.
        role: what the user may do. None keeps the role of an existing user; a new user becomes a
            reader if the endpoint can be reached from other machines, and an owner if not.

    Returns:
        The role that the user has now.

    Raises:
        SettingsError: the name is not allowed, or the password is too short or not printable.
    """
    if not NAME.fullmatch(name):
        message = f"'{name}' is not a valid user name. Use up to 64 letters, digits and . _ @ -"
        raise SettingsError(message)
    if len(password) < SHORTEST or not password.isprintable():
        message = f"A password needs at least {SHORTEST} characters, all of them printable."
        raise SettingsError(message)
    stored = hashed(password)
    with _changed(settings) as users:
        former = users.get(name)
        kept = former.role if former else "owner" if is_loopback(settings.sql_host) else "reader"
        users[name] = User(stored, role or kept)
    return users[name].rights


def change_role(settings: LakeSettings, name: str, role: Role) -> None:
    """Give a user another role. The user's open connections end.

    Raises:
        SettingsError: there is no such user.
    """
    with _changed(settings) as users:
        users[name] = _known(settings, users, name)._replace(role=role)


def remove_user(settings: LakeSettings, name: str) -> None:
    """Stop a user from logging in. The user's open connections end.

    Raises:
        SettingsError: there is no such user.
    """
    with _changed(settings) as users:
        _known(settings, users, name)
        del users[name]


def generated_password(file: Path) -> str:
    """The password in a private file, which is generated if there is no file yet.

    Raises:
        SettingsError: others can read the file, or it is empty or cannot be written.
    """
    path = file.expanduser()
    if not path.exists():
        try:
            write_durably(path, f"{secrets.token_urlsafe(32)}\n", mode=PRIVATE)
        except OSError as error:
            what = f"--generate: {path} cannot be written ({error.strerror})."
            raise SettingsError(what, "Make its folder, or name another file.") from error
    return secret_text("--generate", path)


def hashed(password: str) -> str:
    """The hash of a password, with a new salt, as the file stores it."""
    salt = secrets.token_urlsafe(16)
    found = hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), ROUNDS)
    return f"pbkdf2_sha256${ROUNDS}${salt}${base64.b64encode(found).decode()}"


def _known(settings: LakeSettings, users: dict[str, User], name: str) -> User:
    if name not in users:
        message = (
            f"{users_file(settings)} has no user '{name}'. `lakehouse sql-user list` shows the "
            "users."
        )
        raise SettingsError(message)
    return users[name]


@contextlib.contextmanager
def _changed(settings: LakeSettings) -> Iterator[dict[str, User]]:
    """The users, who are written at the end of the block. Other commands wait meanwhile."""
    file = users_file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_name(f".{file.name}.lock"), mode=PRIVATE):
        users = read_users(settings)
        yield users
        lines = (
            ":".join([name, user.password, *([user.role] if user.role else [])]) + "\n"
            for name, user in users.items()
        )
        write_durably(file, "".join(lines), mode=PRIVATE)
