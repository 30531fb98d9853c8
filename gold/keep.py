"""Keeps gold fresh: builds it again whenever silver has changed."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

from bronze.job import stop_signal
from bronze.settings import LakeSettings
from gold.build import BuildResult, prepare_build
from gold.errors import GoldError

POLL_SECONDS = 2.0


def silver_versions(settings: LakeSettings) -> dict[str, int]:
    """The newest version of each silver table, by the files of its log."""
    logs = (settings.lake_dir / "silver").glob("*/_delta_log")
    return {log.parent.name: _newest(log) for log in logs}


def _newest(log: Path) -> int:
    versions = [int(file.stem) for file in log.glob("*.json") if file.stem.isdigit()]
    return max(versions, default=-1)


def keep_fresh(settings: LakeSettings, built: Callable[[BuildResult], None]) -> None:
    """Build gold now and after every change of silver, and tell `built` each time.

    Raises:
        GoldError: a build failed; the tables of the last good build of each model stay.
        KeyboardInterrupt: Ctrl-C or SIGTERM, the only ways in which it ends well.
    """
    seen: dict[str, int] | None = None
    with stop_signal() as stop:
        while not stop.is_set():
            with prepare_build(settings) as build:
                seen = _wait_for_change(settings, seen, stop)
                if seen is None:
                    break
                try:
                    built(build.run())
                except GoldError:
                    if stop.is_set():  # Ctrl-C ends dbt too
                        break
                    raise
    raise KeyboardInterrupt


def _wait_for_change(
    settings: LakeSettings, seen: dict[str, int] | None, stop: Event
) -> dict[str, int] | None:
    """The versions of silver once they are others than those seen; None when told to stop."""
    while (versions := silver_versions(settings)) == seen:
        if stop.wait(POLL_SECONDS):
            return None
    return versions
