"""The commands of `lakehouse`: one file per group. `lakehouse/cli.py` puts them together.

At its top, a module here imports only the standard library, Typer, `lakehouse.context` and option
types. Each command imports what it runs inside its function. The help and shell completion load
all of these modules, while Spark, Arrow and dbt alone take seconds to load.
tests/lakehouse/test_light_start.py checks this.
"""
