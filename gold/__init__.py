"""Gold: dbt models over silver, tested and served through SQL.

Input: the silver tables, registered for SQL (`catalog.py`). Output: the marts of `dbt_project`, as
plain Delta tables in the schema `gold`. Start with `build.py`.
"""
