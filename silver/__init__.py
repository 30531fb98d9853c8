"""Silver: typed, current, enriched.

Input: the bronze tables. Output:
- for each changelog topic, its current state (`silver.<topic>`, a view of `silver.<topic>_state`);
- for each events topic, its rows with the changelog rows they refer to (`silver.enriched_<topic>`);
- views of the rows whose lookup has found nothing yet (`silver.missing_<lookup>`);
- records that could not be decoded (`silver.quarantine`);
- the audit, which counts the messages of each batch (`silver.reconciliation`).

Guarantee: the tables are the same however messages are split into batches, replayed or duplicated
(invariants 2 to 7).
Start with `refine.py`.
"""
