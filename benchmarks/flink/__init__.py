"""Compares the lakehouse with the same enrichment on Apache Flink. `__main__.py` is the command.

`job.sql` is the whole Flink job. `systems.py` controls both systems, `trial.py` puts both through
the same phases, `commits.py` reads from their tables when rows became readable, and `shop.py` makes
the messages and the expected rows.
"""
