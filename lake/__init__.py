"""What all layers share: settings, topic files, tables, streams and what they report.

Knows no topic of its own. Within this package `streams` uses `observe`, which uses `tables`, which
uses `settings` and `topics`.
"""
