"""Bronze: Pulsar topics land in append-only Delta tables, byte for byte.

Input: the topics that a topic file declares (`lake/topics/topic_file.py`). Output: one table
`bronze.<topic>` for each topic (`lake/tables/table.py`). Guarantee (invariant 1): every message
lands exactly once, byte for byte, with its position. No message is rejected as malformed.
Start with `ingest.py`. It streams from the Pulsar data source in
`pulsar_spark/source.py`.
"""
