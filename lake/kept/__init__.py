"""Keeps the result of a query up to date at a cost that follows the change, from plain SQL.

`query.py` reads the SQL. `planner.py` derives from it which keys a change of its sources can
affect. `statements.py` writes the SQL that computes these keys and the rows that differ. Gold's
models (`gold/kept`) and silver's materialized views (`silver/materialized.py`) run it. Here, both
are called models.
"""
