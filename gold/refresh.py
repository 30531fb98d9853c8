"""Keeps gold fresh: builds it again whenever silver has changed, or a model has waited enough."""

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from threading import Event

import structlog

from gold.build import PreparedBuild, has_snapshot, prepare_build
from gold.dbt.process import WarmDbt
from gold.dbt.results import BuildResult
from gold.errors import BuildError, GoldError
from gold.lock import alone
from lake.tables.lake import Lake

POLL_SECONDS = 2.0
FIRST_BATCH_SECONDS = 60.0

log = structlog.get_logger()


def silver_versions(lake: Lake) -> dict[str, int]:
    """The newest version of each silver table, read from the file names in its log."""
    return {name: table.newest_version() for name, table in lake.tables("silver").items()}


def keep_fresh(
    lake: Lake,
    stop: Event,
    every: float = 0.0,
    leave: Callable[[], bool] | None = None,
) -> Iterator[BuildResult | GoldError]:
    """Build gold now, and again after each change of silver, until `stop` is set.

    The first build waits until silver has finished a batch. Models with `build_after` wait, and
    gold is also built when one of them has waited long enough. A failed build changes nothing for
    readers. It is tried again at the next change of silver. If a model has waited in it, it is
    tried again at once, and no model waits, because a test may have compared that model with newer
    ones. The lock of gold is held while a build waits and runs. It is free while the caller handles
    a result.

    Args:
        lake: the lake; the SQL endpoint is on `sql_port` of its settings.
        stop: ends the wait for a change, and the loop after the current build.
        every: minimum number of seconds between the starts of two builds.
        leave: called before each build; if it returns true, no more builds are made.

    Yields:
        Each build that was published, or the error of one that was not.

    Raises:
        GoldError: another process holds the lock, or silver or gold is not consistent.
    """
    seen: dict[str, int] | None = None
    due_at: dt.datetime | None = None
    may_wait = True
    begun = -every
    with contextlib.closing(WarmDbt()) as warm:
        while not stop.is_set():
            with alone(lake.settings), prepare_build(lake, may_wait=may_wait, warm=warm) as build:
                stop.wait(begun + every - time.monotonic())
                seen = _wait_for_change(lake, seen, stop, due_at)
                if seen is None or (leave and leave()):
                    return
                begun = time.monotonic()
                result = _outcome(build, stop)
            if isinstance(result, BuildError) and result.has_waited:
                log.warning("gold is built again, and no model waits", why=str(result))
                seen, may_wait = None, False
                continue
            may_wait = True
            due_at = result.due_at if isinstance(result, BuildResult) else None
            if result is not None:
                yield result


def await_first_batch(lake: Lake) -> None:
    """Wait until silver has finished a batch, but no longer than `FIRST_BATCH_SECONDS`.

    Called before a single build if `lakehouse up` is running, whose silver may be about to read the
    first messages. If it does not, the build says so.
    """
    end = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=FIRST_BATCH_SECONDS)
    _wait_for_change(lake, None, Event(), end)


def _wait_for_change(
    lake: Lake, seen: dict[str, int] | None, stop: Event, due_at: dt.datetime | None
) -> dict[str, int] | None:
    """Wait until a build is needed, and return the versions of silver; None if stopped.

    It is needed if the versions differ from `seen`, or once it is `due_at`.
    """
    while (versions := silver_versions(lake)) == seen or (seen is None and not has_snapshot(lake)):
        if due_at is not None and dt.datetime.now(dt.timezone.utc) >= due_at:
            break
        if stop.wait(POLL_SECONDS):
            return None
    return None if stop.is_set() else versions


def _outcome(build: PreparedBuild, stop: Event) -> BuildResult | GoldError | None:
    """Run a build, and return its result or error; None if it failed because of the stop."""
    try:
        return build.run()
    except GoldError as error:
        return None if stop.is_set() else error  # Ctrl-C ends dbt, too
