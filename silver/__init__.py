"""Silver: typed, current, enriched.

In: the bronze tables. Out, for each changelog topic, its current state (`silver.<topic>`, a view of
`silver.<topic>_state`); for each events topic its rows, with the looked-up rows of its changelogs
(`silver.enriched_<topic>`); views of the rows that still miss a lookup (`silver.missing_<lookup>`);
records that could not be decoded (`silver.quarantine`); the books (`silver.reconciliation`).
Promise: any batch cut, replay or duplicate gives the same tables (invariants 2 to 7).
Read `refine.py` first.
"""
