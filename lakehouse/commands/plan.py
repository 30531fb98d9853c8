"""`lakehouse plan`: what a change of the topic file or of the models will do."""

import typer

from lakehouse.runtime.context import Format, current


def plan(form: Format = "table") -> None:
    """Show what the next start and the next build of gold will change, and why. Changes nothing.

    The exit code is 1 if a change is refused.
    """
    from gold.catalog import register
    from lake.tables.lake import Lake
    from lakehouse.operate.plan import COLUMNS, plan
    from lakehouse.runtime.console import err, print_rows
    from lakehouse.runtime.ports import with_own_sql_port
    from lakehouse.runtime.run import spark_session
    from lakehouse.up import sql_endpoint

    lake = Lake(with_own_sql_port(current.settings), current.topics)
    with spark_session(lake.settings, "lakehouse-plan") as spark:
        register(spark, lake)
        with sql_endpoint(spark, lake.settings):
            steps = plan(spark, lake)
    if not steps:
        err.print("Nothing will change.")
        return
    print_rows(COLUMNS, [step.cells() for step in steps], form)
    if any(step.is_refused for step in steps):
        raise typer.Exit(1)
