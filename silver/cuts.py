"""Cuts: which versions of all tables belong together, one after each batch of silver."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from bronze.settings import LakeSettings
from bronze.tables import bronze_table
from bronze.topics import TopicFile
from silver.direct import DirectTable
from silver.tables import CUTS, silver_tables

WHOLE_VERSION = -1  # the index of a Delta offset that stands before the version it names


def cut(
    settings: LakeSettings, topics: TopicFile, batch_id: int, sources: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of `silver.cuts` for a batch that is about to end.

    Of silver the versions now, as nobody else writes them; of a bronze table the last version that
    was read in whole, from the offsets (`sources`) at which the batch ends.
    """
    versions = {
        table.full_name: DirectTable(table, settings).version
        for table in silver_tables(topics)
        if table != CUTS
    }
    for name, offset in sources.items():
        if offset["index"] == WHOLE_VERSION:
            versions[bronze_table(name).full_name] = offset["reservoirVersion"] - 1
    now = dt.datetime.now(dt.timezone.utc)
    return {"silver_batch": batch_id, "committed_at": now, "versions": versions}
