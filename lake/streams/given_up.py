"""Notes in the checkpoint of a stream that it was given up, and why. Needs no Spark."""

import contextlib
import datetime as dt
import json
from pathlib import Path
from typing import NamedTuple

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import LakehouseError

GIVEN_UP = "lakehouse.given-up"


class GivenUp(NamedTuple):
    """When a stream was given up, and why."""

    at: dt.datetime
    reason: str


def given_up(settings: LakeSettings, query: str) -> GivenUp | None:
    """When and why a stream was given up; None if it was not, or was started again since."""
    file = _note(settings, query)
    try:
        stored = read_json(file, "The log says why.")
    except LakehouseError as error:
        then = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.timezone.utc)
        return GivenUp(then, str(error))
    if stored is None:
        return None
    return GivenUp(dt.datetime.fromisoformat(stored["at"]), stored["reason"])


def note_given_up(settings: LakeSettings, query: str, reason: str) -> None:
    """Note that a stream was given up now. Does nothing if the disk is gone or full."""
    note = {"at": dt.datetime.now(dt.timezone.utc).isoformat(), "reason": reason}
    with contextlib.suppress(OSError):
        write_durably(_note(settings, query), json.dumps(note))


def note_started(settings: LakeSettings, query: str) -> None:
    """Delete the note, because the stream runs again."""
    delete_durably(_note(settings, query))


def _note(settings: LakeSettings, query: str) -> Path:
    return Path(settings.checkpoint_path(query)) / GIVEN_UP
