"""Keeps models up to date at a cost that follows the change, from plain SQL.

`query.py` reads the SQL of a model. `planner.py` derives from it which keys a change of its sources
can affect. `statements.py` writes the SQL that computes these keys and the rows that differ.
`keeper.py` runs it, with `table.py` for few rows. `adapter.py` is how dbt gets here.
"""
