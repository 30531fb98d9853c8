"""Keeps the last errors of a stream in its checkpoint, so that they survive restarts. No Spark.

Each failure is one durable write. A batch that succeeds writes nothing.
"""

import contextlib
import datetime as dt
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lake.durable import read_json, write_durably
from lake.settings.settings import LakeSettings
from pulsar_spark.errors import LakehouseError
from pulsar_spark.log_masking import redact

ERRORS = "lakehouse.errors"
MOST = 10
LONGEST = 2000  # characters of a reason


@dataclass(frozen=True)
class StreamError:
    """A failure of a stream.

    at: when it failed; ISO 8601 in UTC, as are the other times.
    reason: the sentence that matters, with secrets masked.
    retry: the restart that follows, such as `1 of 5`; empty if the stream was given up.
    retry_at: when this restart is due; empty if the stream was given up.
    started_at: when the stream was started again; empty if it has not been.
    """

    at: str
    reason: str
    retry: str = ""
    retry_at: str = ""
    started_at: str = ""


def last_errors(settings: LakeSettings, query: str) -> list[StreamError]:
    """The last errors of a stream, the newest first; at most `MOST`.

    A file that was torn by a power cut counts as empty, because nothing depends on it.
    """
    try:
        stored = read_json(_file(settings, query), "") or {}
    except LakehouseError:
        return []
    return [StreamError(**each) for each in stored.get("errors", [])]


def note_error(
    settings: LakeSettings, query: str, reason: str, *, retry: str, delay: float
) -> None:
    """Note that a stream failed now. Does nothing if the disk is gone or full.

    Called by the supervisor of the stream.

    Args:
        settings: the lake.
        query: the name of the stream.
        reason: why it failed.
        retry: the restart that follows, such as `1 of 5`; empty if it was given up.
        delay: the seconds until then.
    """
    now = dt.datetime.now(dt.timezone.utc)
    due = (now + dt.timedelta(seconds=delay)).isoformat() if retry else ""
    error = StreamError(now.isoformat(), redact(reason)[:LONGEST], retry, due)
    _write(settings, query, [error, *last_errors(settings, query)][:MOST])


def note_started_again(settings: LakeSettings, query: str) -> None:
    """Note that a stream was started after its last error. Called at each start of the stream."""
    errors = last_errors(settings, query)
    if errors and not errors[0].started_at:
        now = dt.datetime.now(dt.timezone.utc).isoformat()
        _write(settings, query, [replace(errors[0], started_at=now), *errors[1:]])


def _write(settings: LakeSettings, query: str, errors: list[StreamError]) -> None:
    content = json.dumps({"errors": [asdict(each) for each in errors]}, ensure_ascii=False)
    with contextlib.suppress(OSError):
        write_durably(_file(settings, query), content)


def _file(settings: LakeSettings, query: str) -> Path:
    return Path(settings.checkpoint_path(query)) / ERRORS
