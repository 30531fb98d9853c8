"""Keeps gold fresh: builds it again whenever silver has changed."""

import time
from collections.abc import Callable
from threading import Event

from gold.build import prepare_build
from gold.errors import GoldError
from gold.lock import alone
from gold.results import BuildResult
from lake.settings.settings import LakeSettings
from lake.streams.job import stop_signal
from lake.tables.storage import newest_version
from lake.tables.table import delta_tables

POLL_SECONDS = 2.0


def silver_versions(settings: LakeSettings) -> dict[str, int]:
    """The newest version of each silver table, read from the file names in its log."""
    return {
        name: newest_version(settings, place)
        for name, place in delta_tables(settings, "silver").items()
    }


def keep_fresh(
    settings: LakeSettings,
    built: Callable[[BuildResult], None],
    refused: Callable[[GoldError], None],
    every: float = 0.0,
    leave: Callable[[], bool] | None = None,
) -> None:
    """Build gold now, and again after each change of silver, until stopped.

    A failed build changes nothing for readers. It is tried again at the next change of silver.

    Args:
        settings: the lake; the SQL endpoint is on `sql_port`.
        built: called with each build that was published.
        refused: called with the error of each build that was not published.
        every: minimum number of seconds between the starts of two builds.
        leave: called before each build; if it returns true, no more builds are made.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM.
    """
    seen: dict[str, int] | None = None
    begun = -every
    with stop_signal() as stop:
        while not stop.is_set():
            with alone(settings), prepare_build(settings) as build:
                stop.wait(begun + every - time.monotonic())
                seen = _wait_for_change(settings, seen, stop)
                if seen is None:
                    break
                if leave and leave():
                    return
                begun = time.monotonic()
                try:
                    built(build.run())
                except GoldError as error:
                    if not stop.is_set():  # Ctrl-C ends dbt too
                        refused(error)
    raise KeyboardInterrupt


def _wait_for_change(
    settings: LakeSettings, seen: dict[str, int] | None, stop: Event
) -> dict[str, int] | None:
    """Wait until the versions of silver differ from `seen`, and return them; None if stopped."""
    while (versions := silver_versions(settings)) == seen:
        if stop.wait(POLL_SECONDS):
            return None
    return None if stop.is_set() else versions
