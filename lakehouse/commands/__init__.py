"""The commands of `lakehouse`: one file per group. `lakehouse/cli.py` puts them together.

At its top, a module here imports only the standard library, Typer, `lakehouse.runtime.context` and
option types. Each command imports inside its function what it runs. Help and shell completion load
all of these modules, while Spark, Arrow and dbt alone take seconds to load.
tests/lakehouse/test_light_start.py checks this.
"""
