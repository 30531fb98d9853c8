"""The lakehouse beside the same enrichment on Apache Flink. `__main__.py` is the command.

`job.sql` is Flink's whole job. `systems.py` drives both systems, `trial.py` puts them through the
same, `commits.py` reads from their tables what became readable when, and `shop.py` knows what
should.
"""
