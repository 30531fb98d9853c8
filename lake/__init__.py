"""Shared by all layers: settings, topic files, tables, streams, logs, metrics and lineage.

Contains no topic of its own. Within this package, `streams` uses `observe`, which uses `tables`,
which uses `settings` and `topics`.
"""
