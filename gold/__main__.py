"""`python -m gold`: runs dbt against the SQL endpoint of a cluster. Needs no Spark of its own."""

import structlog
import typer

from gold.build import build_gold, require_silver
from gold.dbt.results import BuildResult
from gold.errors import GoldError
from gold.metrics import gold_collector
from gold.options import Every, FullRefresh, Select, seconds
from gold.refresh import keep_fresh
from lake.observe.exporter import serving
from lake.observe.logs import configure_logs
from lake.settings.settings import load_settings
from lake.streams.command import AvailableNow, exit_with
from lake.streams.job import stop_signal
from lake.tables.format import require_known_format
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from silver.contract.evolved import evolved

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
    require_known_format(settings)
    lake = evolved(Lake(settings, load_topics(settings.topics)))
    require_silver(lake)
    if available_now or select or full_refresh:
        report(build_gold(lake, select=select, full_refresh=full_refresh))
    else:
        with serving(settings, gold_collector(lake), needs=()), stop_signal() as stop:
            for result in keep_fresh(lake, stop, seconds(every)):
                report(result)
        raise KeyboardInterrupt  # sets the exit code


def report(result: BuildResult | GoldError) -> None:
    """Log what a build did, or why it was not published."""
    if isinstance(result, GoldError):
        log.error("gold not published", why=str(result))
    else:
        log.info("gold built", models=len(result.models), tests_passed=len(result.tests))


if __name__ == "__main__":
    exit_with(app)
