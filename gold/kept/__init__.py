"""Keeps dbt's models up to date with the planner of `lake/kept`.

`keeper.py` runs the plan of a model, with `table.py` for few rows. `adapter.py` is how dbt gets
here.
"""
