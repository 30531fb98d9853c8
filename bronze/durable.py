"""Small files of state that survive a kill and a power cut: a reader finds the old content or the
new one, never a part.

The one place that writes such files. A rename alone is not enough: after a power cut the file can
have its new name and no content, so the content reaches the disk before the rename, and the rename
before anything that relies on it.
"""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from bronze.errors import LakehouseError

PRIVATE = 0o600  # for files that name people or hold hashes of passwords


def write_durably(file: Path, content: str, *, mode: int = 0o644) -> None:
    """Write a file, or replace it, so that it is whole after a power cut.

    Args:
        file: in a folder that exists.
        content: all of it; written as UTF-8.
        mode: permissions of the file, less those that the umask takes away.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the old file is untouched.
    """
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content.encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    _sync_folder(file.parent)


def delete_durably(*files: Path) -> None:
    """Delete those files that are there, so that a power cut does not bring them back.

    Drafts go too that a writer of one of them left when it was killed.
    """
    for file in files:
        file.unlink(missing_ok=True)
        for draft in file.parent.glob(f".{file.name}.*.tmp"):
            draft.unlink(missing_ok=True)
    for folder in {file.parent for file in files}:
        _sync_folder(folder)


def read_json(
    file: Path, remedy: str, error: type[LakehouseError] = LakehouseError
) -> dict[str, Any] | None:
    """The JSON object that a small file holds; None if there is no such file, or it holds `null`.

    Args:
        file: as `write_durably` leaves it; one of an earlier version may be empty or torn.
        remedy: what the user can do about a torn one; a sentence.
        error: the class of the error.

    Raises:
        LakehouseError: the file is empty or torn; of the given class.
    """
    try:
        stored: dict[str, Any] | None = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        message = f"{file} is empty or torn, as after a power cut. {remedy}"
        raise error(message) from None
    return stored


def _sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
