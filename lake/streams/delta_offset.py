"""Positions of Spark's stream over a Delta table, in the JSON form that a checkpoint holds."""

import json

from deltalake import DeltaTable

WHOLE_VERSION = -1  # the index of an offset that stands before the version it names


def offset_of_delta(table: DeltaTable, version: int, *, snapshot: bool = False) -> str:
    """The position before a version of a table, or before the rows of that version.

    Args:
        table: the table that is streamed.
        version: the version.
        snapshot: whether the stream first reads all rows that the version holds.
    """
    offset = {
        "sourceVersion": 1,
        "reservoirId": str(table.metadata().id),
        "reservoirVersion": version,
        "index": WHOLE_VERSION,
        "isStartingVersion": snapshot,
    }
    return json.dumps(offset)
