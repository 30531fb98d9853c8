"""Which rows and columns of silver's tables readers see. Sinks send these and no others.

Readers of silver use its views, which leave tombstones and marks out. A sink reads the tables, and
may read tables of gold or of others, so the names of the columns decide.
"""

from collections.abc import Sequence

BATCHES = ("silver_batch", "arrived_batch")
OF_SILVER = ("position", "publish_time", "missing_lookups")
POSITION = "_position"  # of a looked-up row, after the name of its column
DELETED = "is_deleted"  # true in a tombstone of a state table
VERSION = "valid_from"  # of a version in an SCD2 table, where a deleted version is a row, too
MARK = "mark"  # not NULL in rows of state tables that concern no single key
OF_STATE = {DELETED, MARK, "position"}  # topics have no fields with these names


def hiding_columns(columns: Sequence[str]) -> list[str]:
    """The columns that hide a row from readers: if they are true, or not NULL in case of a text.

    Args:
        columns: the columns of a table.
    """
    found = [DELETED] if DELETED in columns and VERSION not in columns else []
    return found + ([MARK] if {*columns} >= OF_STATE else [])


def shown_columns(columns: Sequence[str]) -> list[str]:
    """The columns of a table that concern readers, in order.

    In a table of silver, all but silver's bookkeeping: batches, positions, and the publish time. A
    new message with the same values is therefore no change.
    """
    left_out = {*BATCHES, *hiding_columns(columns)}
    if BATCHES[0] in columns:
        left_out |= {*OF_SILVER, *(f"{name}{POSITION}" for name in columns)}
    return [name for name in columns if name not in left_out]
