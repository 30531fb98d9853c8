"""Writes small state files that survive a kill and a power cut.

A reader finds the old content or the new content, never a part of it. All such files are written
here. A rename alone is not enough, because after a power cut the file can have its new name but no
content. The content therefore reaches the disk before the rename, and the rename reaches the disk
before anything that relies on it.
"""

import contextlib
import glob
import json
import os
import secrets
from pathlib import Path
from typing import Any

from pulsar_spark.errors import LakehouseError

PRIVATE = 0o600  # for files that name people or hold hashes of passwords


def write_durably(file: Path, content: str, *, mode: int = 0o644) -> None:
    """Create or replace a file so that it is whole even after a power cut.

    Also deletes the temporary files that a writer left behind when it was killed, so two processes
    must not write the same file at once.

    Args:
        file: the file; its folder must exist.
        content: the whole content, written as UTF-8.
        mode: permissions of the file, before the umask is applied.

    Raises:
        OSError: the disk is full, or the folder is not writable. The old file is unchanged.
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
    _delete_drafts(file)
    sync_folder(file.parent)


def move_durably(draft: Path, file: Path) -> None:
    """Give a file that another program has written its name, once its content is on the disk.

    Args:
        draft: the whole file, on the same disk.
        file: its new name; a file of that name is replaced.
    """
    with draft.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(draft, file)
    sync_folder(file.parent)


def delete_durably(*files: Path) -> None:
    """Delete files so that a power cut does not bring them back. Absent files are skipped.

    Also deletes the temporary files that a writer left behind when it was killed.
    """
    for file in files:
        file.unlink(missing_ok=True)
        _delete_drafts(file)
    for folder in {file.parent for file in files}:
        sync_folder(folder)


def read_json(
    file: Path, remedy: str, error: type[LakehouseError] = LakehouseError
) -> dict[str, Any] | None:
    """Read the JSON object in a small file.

    Args:
        file: a file from `write_durably`. Earlier versions may have left it empty or torn.
        remedy: what the user can do about a torn file, for the error.
        error: the class of the error to raise.

    Returns:
        The object; None if the file does not exist or holds `null`.

    Raises:
        LakehouseError: the file is empty or torn. Its class is `error`.
    """
    try:
        stored: dict[str, Any] | None = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        what = f"{file} is empty or torn, perhaps by a power cut."
        raise error(what, remedy) from None
    return stored


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder have reached the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _delete_drafts(file: Path) -> None:
    for draft in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):
        draft.unlink(missing_ok=True)
