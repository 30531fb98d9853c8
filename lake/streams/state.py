"""The state of a stream, read from its checkpoint by any process. Needs no Spark.

Which streams run is read from the locks on their checkpoints. Linux lists them in `/proc/locks`,
so that nobody has to take a lock to find out, which could keep a stream from starting. Where there
is no such list, the state of a stream that runs elsewhere is `unknown`.
"""

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lake.observe.recent_batches import Batch
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import LOCK, last_commit, newest_batch
from lake.streams.given_up import given_up
from lake.streams.last_errors import StreamError, last_errors
from lake.streams.pause import is_paused, paused_since
from lake.topics.topic_file import TopicFile

LOCKS = Path("/proc/locks")
SILVER = "silver"

State = Literal["running", "retrying", "given up", "paused", "stopped", "unknown"]
Locks = Collection[tuple[int, int]] | None


@dataclass(frozen=True)
class StreamState:
    """The state of a stream.

    name: the name of the query, such as `bronze.orders`.
    state: `retrying` if it waits for a restart after an error, `stopped` if no process runs it.
    since: when it came into this state, as far as that is noted; ISO 8601 in UTC, or empty.
    batch: the last batch that it has planned; None if it has not run yet.
    finished: when it finished its last batch, in seconds since 1970; None if it has finished none.
    errors: its last errors, the newest first.
    """

    name: str
    state: State
    since: str
    batch: int | None
    finished: float | None
    errors: tuple[StreamError, ...]


def stream_names(topics: TopicFile) -> list[str]:
    """The names of all streams of a topic file: of imports, bronze, silver and the sinks."""
    return [
        *(each.label for each in topics.imports.values()),
        *(f"bronze.{name}" for name in topics.topics),
        SILVER,
        *(each.label for each in topics.publish.values()),
        *(each.label for each in topics.export.values()),
    ]


def stream_states(settings: LakeSettings, names: Collection[str]) -> list[StreamState]:
    """The states of streams, in the order of their names in `names`."""
    locks = held_locks()
    return [_state(settings, name, locks) for name in names]


def finished_batches(settings: LakeSettings, query: str) -> list[Batch]:
    """The last batches of a stream of any process, the oldest first.

    A batch begins when it has been planned and ends when it is finished, according to the times of
    the files in the checkpoint. Spark keeps those of about a hundred batches.
    """
    folder = Path(settings.checkpoint_path(query))
    found = []
    for file in (folder / "commits").glob("*"):
        with contextlib.suppress(OSError):
            if file.name.isdigit():
                ended = file.stat().st_mtime
                begun = (folder / "offsets" / file.name).stat().st_mtime
                found.append(Batch(int(file.name), begun, max(ended - begun, 0.0), {}))
    return sorted(found, key=lambda batch: batch.number)


def finished_at(settings: LakeSettings, query: str) -> float | None:
    """When a stream of any process finished its last batch, in seconds since 1970.

    None if it has finished none.
    """
    offsets = last_commit(settings, query)
    if offsets is None:
        return None
    try:
        return (offsets.parents[1] / "commits" / offsets.name).stat().st_mtime
    except OSError:  # cleaned up in between
        return None


def held_locks() -> Locks:
    """The locks that processes of this machine hold, as device and inode; None if unknown."""
    try:
        text = LOCKS.read_text()
    except OSError:
        return None
    found = set()
    for line in text.splitlines():
        parts = line.split()
        if len(parts) > 5 and parts[1] in ("FLOCK", "POSIX", "OFDLCK"):
            major, minor, inode = parts[5].split(":")
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found


def is_claimed(settings: LakeSettings, query: str, locks: Locks) -> bool | None:
    """Whether a process has claimed the checkpoint of a stream; None if that is not known."""
    if locks is None:
        return None
    try:
        found = (Path(settings.checkpoint_path(query)) / LOCK).stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in locks


def _state(settings: LakeSettings, name: str, locks: Locks) -> StreamState:
    errors = tuple(last_errors(settings, name))
    finished = finished_at(settings, name)
    found, since = _found(settings, name, errors, is_claimed(settings, name, locks))
    return StreamState(name, found, since, newest_batch(settings, name), finished, errors)


def _found(
    settings: LakeSettings, name: str, errors: tuple[StreamError, ...], claimed: bool | None
) -> tuple[State, str]:
    if is_paused(settings, name):
        since = paused_since(settings, name)
        return "paused", since.isoformat() if since else ""
    stopped = given_up(settings, name)
    if stopped is not None:
        return "given up", stopped.at.isoformat()
    if claimed is False:
        return "stopped", ""
    if errors and errors[0].retry and not errors[0].started_at:
        return "retrying", errors[0].at
    return ("unknown" if claimed is None else "running"), ""
