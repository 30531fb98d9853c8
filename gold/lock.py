"""The lock of a lake's gold: one command at a time builds, publishes, restores or deletes it.

It is a file in the home folder, and the operating system releases it when its process ends.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from gold.errors import GoldError
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import UNFINISHED
from silver.refine import QUERY

GOLD = "gold"


@contextlib.contextmanager
def alone(settings: LakeSettings, what: str = GOLD) -> Iterator[None]:
    """Hold a lock of gold during the block. Called by each command that writes gold's tables.

    Args:
        settings: the lake.
        what: what is locked: gold itself, or the schema that another command builds.

    Raises:
        GoldError: another process holds the lock.
    """
    settings.home_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.home_dir / f"{what}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        message = (
            f"Another process is building or restoring {what} (it holds {lock.lock_file}). Stop it "
            "or wait until it has finished, then run this command again."
        )
        raise GoldError(message) from error
    try:
        yield
    finally:
        lock.release()


def require_whole(settings: LakeSettings) -> None:
    """Check that no command was interrupted while it rewrote silver or gold.

    Raises:
        GoldError: one was interrupted, so gold would show tables that do not belong together.
    """
    note = Path(settings.checkpoint_path(QUERY)) / UNFINISHED
    if note.exists():
        message = (
            f"`{note.read_text()}` was interrupted, so the tables are not consistent and gold is "
            "not built from them. Run that command again to finish it."
        )
        raise GoldError(message)
