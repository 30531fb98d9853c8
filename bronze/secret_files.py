"""Files that hold a secret, which the file system must keep from others."""

import stat
from pathlib import Path

from bronze.errors import SettingsError

# The group may read: so Kubernetes gives a mounted secret to a pod (`fsGroup`).
TOO_OPEN = stat.S_IWGRP | stat.S_IRWXO


def require_private(setting: str, file: Path) -> Path:
    """See that a file is there, and that others may not read it nor the group write it.

    Raises:
        SettingsError: it is not so; names the setting that named the file.
    """
    path = file.expanduser()
    if not path.is_file():
        message = f"{setting}: there is no file {path} on this machine; correct the path."
        raise SettingsError(message)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & TOO_OPEN:
        message = (
            f"{setting}: {path} holds a secret, and its mode {mode:o} lets other users of this "
            f"machine at it. `chmod 600 {path}`."
        )
        raise SettingsError(message)
    return path


def secret_text(setting: str, file: Path) -> str:
    """What a file with a secret holds, without the line's end.

    Raises:
        SettingsError: it is absent, empty, or others may read it.
    """
    text = require_private(setting, file).read_text().strip("\r\n")
    if not text:
        message = f"{setting}: {file} is empty; put the secret there."
        raise SettingsError(message)
    return text
