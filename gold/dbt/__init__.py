"""Runs dbt in a process of its own, and reads what it leaves behind.

`process.py` starts `python -m gold.dbt`, which is dbt with a checked connection. `results.py` reads
the results of a run, and `docs.py` has dbt write its docs. This package is `gold.dbt`; `import dbt`
is the library.
"""
