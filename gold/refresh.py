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
    """The newest version of each silver table, by the names in its log."""
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
    """Build gold now and after changes of silver, until told to stop.

    A build that fails changes nothing for readers; the next change of silver is another try.

    Args:
        settings: the lake; the SQL endpoint is on `sql_port`.
        built: told of each build that was published.
        refused: told of each that was not.
        every: seconds from the begin of a build to that of the next, at least.
        leave: asked before a build; if true, it returns without it.

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
    """The versions of silver once they are others than those seen; None when told to stop."""
    while (versions := silver_versions(settings)) == seen:
        if stop.wait(POLL_SECONDS):
            return None
    return None if stop.is_set() else versions
