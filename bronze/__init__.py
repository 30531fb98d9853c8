"""Bronze: Pulsar topics land in append-only Delta tables, bytes kept as they came.

In: the topics a topic file declares (`topics.py`). Out: one table `bronze.<topic>` each
(`tables.py`). Promise (invariant 1): every message exactly once, byte for byte, with its position;
nothing is refused for being malformed.
Read `ingest.py` first; `source.py` is the Pulsar data source it streams from.
"""
