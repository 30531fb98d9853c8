"""Reads files that hold a secret, and checks that their permissions protect it."""

import stat
from pathlib import Path

from pulsar_spark.errors import SettingsError

# The group may read: this is how Kubernetes gives a pod access to a mounted secret (`fsGroup`).
TOO_OPEN = stat.S_IWGRP | stat.S_IRWXO


def require_private(setting: str, file: Path) -> Path:
    """Check that a file exists, that others cannot access it, and that the group cannot write it.

    Args:
        setting: the setting that names the file, for the error.
        file: the file; `~` is expanded.

    Returns:
        The expanded path.

    Raises:
        SettingsError: the file is absent, or its permissions are too open.
    """
    path = file.expanduser()
    if not path.is_file():
        what = f"{setting}: the file {path} does not exist on this machine."
        raise SettingsError(what, "Correct the path.")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & TOO_OPEN:
        what = (
            f"{setting}: {path} holds a secret, but its mode {mode:o} gives other users of this "
            "machine access to it."
        )
        raise SettingsError(what, f"Run `chmod 600 {path}`.")
    return path


def secret_text(setting: str, file: Path) -> str:
    """Read the secret in a file, without the line break at its end.

    Raises:
        SettingsError: the file is absent, empty or not UTF-8, or its permissions are too open.
    """
    try:
        text = require_private(setting, file).read_text("utf-8").strip("\r\n")
    except UnicodeDecodeError:  # whose message would show a part of the secret
        what = f"{setting}: {file} is not a text in UTF-8."
        raise SettingsError(what, "Correct the file.") from None
    if not text:
        what = f"{setting}: {file} is empty."
        raise SettingsError(what, "Put the secret into it.")
    return text
