"""Keeps gold fresh: builds it again whenever silver has changed."""

import time
from collections.abc import Callable, Iterator
from threading import Event

from gold.build import PreparedBuild, has_snapshot, prepare_build
from gold.dbt.results import BuildResult
from gold.errors import GoldError
from gold.lock import alone
from lake.tables.lake import Lake

POLL_SECONDS = 2.0


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

    The first build waits until silver has finished a batch. A failed build changes nothing for
    readers. It is tried again at the next change of silver. The lock of gold is held while a build
    waits and runs. It is free while the caller handles a result.

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
    begun = -every
    while not stop.is_set():
        with alone(lake.settings), prepare_build(lake) as build:
            stop.wait(begun + every - time.monotonic())
            seen = _wait_for_change(lake, seen, stop)
            if seen is None or (leave and leave()):
                return
            begun = time.monotonic()
            result = _outcome(build, stop)
        if result is not None:
            yield result


def _wait_for_change(lake: Lake, seen: dict[str, int] | None, stop: Event) -> dict[str, int] | None:
    """Wait until the versions of silver differ from `seen`, and return them; None if stopped."""
    while (versions := silver_versions(lake)) == seen or (seen is None and not has_snapshot(lake)):
        if stop.wait(POLL_SECONDS):
            return None
    return None if stop.is_set() else versions


def _outcome(build: PreparedBuild, stop: Event) -> BuildResult | GoldError | None:
    """Run a build, and return its result or error; None if it failed because of the stop."""
    try:
        return build.run()
    except GoldError as error:
        return None if stop.is_set() else error  # Ctrl-C ends dbt, too
