"""Shared by all layers: settings, topic files, tables, streams, logs, metrics, lineage and
the planner of kept queries.

Contains no topic of its own. Within this package, `streams` uses `observe`, which uses `tables`,
which uses `settings` and `topics`, which
uses `kept`.
"""

DISTRIBUTION = "orders-lakehouse"  # the name under which the package is installed
