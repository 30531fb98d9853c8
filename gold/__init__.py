"""Gold: dbt models over silver, tested and served by SQL.

In: the silver tables, registered for SQL (`catalog.py`). Out: the marts of `dbt_project`, as plain
Delta tables in the schema `gold`. Read `build.py` first.
"""
