"""Pauses single streams: a note in the checkpoint, which the process of the stream looks for.

A stream that is to pause finishes its current batch, stops, and releases its checkpoint. It stays
paused over restarts of the process until the note is deleted. Meanwhile, the broker keeps the
messages that bronze has not read, and bronze those that silver has not read.
"""

import datetime as dt
import json
from pathlib import Path

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import LakehouseError

PAUSED = "lakehouse.paused"


def pause(settings: LakeSettings, query: str) -> None:
    """Let a stream pause after its current batch. It need not be running, nor have run yet.

    Called by `lakehouse pause`.
    """
    file = _note(settings, query)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_durably(file, json.dumps({"at": dt.datetime.now(dt.timezone.utc).isoformat()}))


def resume(settings: LakeSettings, query: str) -> bool:
    """Let a paused stream continue. Called by `lakehouse resume`.

    Returns:
        Whether the stream was paused.
    """
    if not is_paused(settings, query):
        return False
    delete_durably(_note(settings, query))
    return True


def is_paused(settings: LakeSettings, query: str) -> bool:
    """Whether a stream is to pause. Called often, so it does not read the note."""
    return _note(settings, query).exists()


def paused_since(settings: LakeSettings, query: str) -> dt.datetime | None:
    """When a stream was paused; None if it is not."""
    file = _note(settings, query)
    try:
        stored = read_json(file, "")
    except LakehouseError:  # torn; it pauses the stream nevertheless
        return dt.datetime.fromtimestamp(file.stat().st_mtime, dt.timezone.utc)
    return None if stored is None else dt.datetime.fromisoformat(stored["at"])


def _note(settings: LakeSettings, query: str) -> Path:
    return Path(settings.checkpoint_path(query)) / PAUSED
