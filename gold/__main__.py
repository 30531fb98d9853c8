"""`python -m gold`: dbt against the SQL endpoint of a cluster; needs no Spark of its own."""

from typing import Annotated

import structlog
import typer

from bronze.job import AvailableNow, configure_logs, exit_with
from bronze.settings import load_settings
from bronze.topics import load_topics
from gold.build import BuildResult, build_gold, require_silver
from gold.keep import keep_fresh

Select = Annotated[str | None, typer.Option(help="Models to build, as dbt selects.")]
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
) -> None:
    """Build and test the dbt models; again whenever silver changes, unless --available-now."""
    configure_logs()
    settings = load_settings()
    require_silver(settings, load_topics(settings.topics))
    if available_now or select or full_refresh:
        report(build_gold(settings, select=select, full_refresh=full_refresh))
    else:
        keep_fresh(settings, report)


def report(result: BuildResult) -> None:
    """Log what a build did."""
    log.info("gold built", models=len(result.models), tests_passed=len(result.tests))


if __name__ == "__main__":
    exit_with(app)
