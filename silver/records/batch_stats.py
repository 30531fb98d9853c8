"""Counts the messages and bytes of a batch from bronze's Delta logs, before any message is read.

The audit therefore counts independently of what Spark reads and decodes, and a small batch is
recognised without a Spark job.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake.streams.delta_offset import WHOLE_VERSION
from lake.tables.lake import Lake
from lake.tables.spec import bronze_table
from lake.tables.table import Table

FEW = 50_000  # messages: about as many as wait after a pause of one minute
SMALL = 32 << 20  # compressed bytes
MANY_VERSIONS = 200

Span = tuple[Mapping[str, Any] | None, Mapping[str, Any]]


def few(rows: int, size: int = 0) -> bool:
    """Whether a batch is small enough for the driver.

    Args:
        rows: number of rows.
        size: compressed bytes of the files that hold them.
    """
    return rows <= FEW and size <= SMALL


@dataclass(frozen=True)
class BatchStats:
    """The size of a batch.

    messages: number of messages, by topic.
    size: compressed bytes of the files that hold them.
    """

    messages: Mapping[str, int]
    size: int

    @property
    def are_few(self) -> bool:
        """Whether the batch is small enough for the driver."""
        return few(sum(self.messages.values()), self.size)

    @classmethod
    def read(cls, lake: Lake, spans: Mapping[str, Span]) -> "BatchStats | None":
        """Count the messages between two offsets of each topic.

        Args:
            lake: the lake.
            spans: the begin and end of the batch in each bronze table, as Spark's stream over the
                table stores them; the begin is None for a topic that is new.

        Returns:
            The size; None if the logs do not give it: for a topic that is read from its beginning,
            a part of a version, or a span of more than 200 versions.
        """
        messages, size = {}, 0
        for name, (begin, end) in spans.items():
            found = _appended(lake.table(bronze_table(name)), begin, end)
            if found is None:
                return None
            messages[name] = found[0]
            size += found[1]
        return cls(messages, size)


def _appended(
    table: Table, begin: Mapping[str, Any] | None, end: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Rows and bytes appended between two offsets of a table; None if the log lacks them."""
    if begin is None or not _is_between_versions(begin) or not _is_between_versions(end):
        return None
    versions = range(begin["reservoirVersion"], end["reservoirVersion"])
    if begin["reservoirId"] != end["reservoirId"] or len(versions) > MANY_VERSIONS:
        return None
    rows = size = 0
    for version in versions:
        changes = table.changes(version)
        if changes is None:
            return None
        for file in changes.appended:
            stats = json.loads(file.get("stats") or "{}")
            if "numRecords" not in stats:
                return None
            rows += stats["numRecords"]
            size += file["size"]
    return rows, size


def _is_between_versions(offset: Mapping[str, Any]) -> bool:
    return bool(offset["index"] == WHOLE_VERSION and not offset["isStartingVersion"])
