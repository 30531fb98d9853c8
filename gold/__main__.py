"""`python -m gold`: dbt against the SQL endpoint of a cluster; needs no Spark of its own."""

from typing import Annotated

import structlog
import typer
from pytimeparse.timeparse import timeparse

from bronze.errors import SettingsError
from bronze.exporter import serving
from bronze.job import AvailableNow, exit_with
from bronze.logs import configure_logs
from bronze.settings import load_settings
from bronze.topics import load_topics
from gold.build import build_gold, require_silver
from gold.errors import GoldError
from gold.keep import keep_fresh
from gold.measure import gold_collector
from gold.results import BuildResult

Select = Annotated[
    str | None,
    typer.Option(help="Models to build and test, as dbt selects, and not to publish."),
]
Every = Annotated[
    str, typer.Option(metavar="TIME", help="Build no more often than this, such as 30s or 5m.")
]
FullRefresh = Annotated[
    bool, typer.Option("--full-refresh", help="Rebuild incremental models from scratch.")
]

log = structlog.get_logger()
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    available_now: AvailableNow = False,
    select: Select = None,
    full_refresh: FullRefresh = False,
    every: Every = "0s",
) -> None:
    """Build, test and publish gold; again whenever silver changes, unless --available-now."""
    settings = load_settings()
    configure_logs(settings.log_format)
    require_silver(settings, load_topics(settings.topics))
    if available_now or select or full_refresh:
        report(build_gold(settings, select=select, full_refresh=full_refresh))
    else:
        with serving(settings, gold_collector(settings)):
            keep_fresh(settings, report, warn, seconds(every))


def seconds(text: str) -> float:
    """What a span of time such as `30s` or `5m` is in seconds.

    Raises:
        SettingsError: it is none.
    """
    found = timeparse(text)
    if found is None:
        message = f"--every: '{text}' is no span of time; write one such as 30s, 5m or 1h."
        raise SettingsError(message)
    return float(found)


def report(result: BuildResult) -> None:
    """Log what a build did."""
    log.info("gold built", models=len(result.models), tests_passed=len(result.tests))


def warn(error: GoldError) -> None:
    """Log why a build was not published."""
    log.error("gold not published", why=str(error))


if __name__ == "__main__":
    exit_with(app)
