"""What a batch brings, as bronze's logs tell it before a message is read: how many, and how much.

So the books count independently of what Spark reads and decodes, and a small batch is known for one
before it costs a job.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bronze.settings import LakeSettings
from bronze.storage import read_text
from bronze.tables import TableSpec, bronze_table
from silver.cuts import WHOLE_VERSION

FEW = 50_000  # messages, which also a stream has waiting that was away for a minute
SMALL = 32 << 20  # compressed
MANY_VERSIONS = 200

Span = tuple[Mapping[str, Any] | None, Mapping[str, Any]]


def few(rows: int, size: int = 0) -> bool:
    """Whether so many rows, of files of so many bytes, are handled in the driver."""
    return rows <= FEW and size <= SMALL


@dataclass(frozen=True)
class Arrivals:
    """What a batch brings: messages by topic, and bytes of the files that they are in."""

    messages: Mapping[str, int]
    size: int

    @property
    def are_few(self) -> bool:
        """Whether they are handled in the driver."""
        return few(sum(self.messages.values()), self.size)

    @classmethod
    def read(cls, settings: LakeSettings, spans: Mapping[str, Span]) -> "Arrivals | None":
        """What is between two offsets of each topic; None if the logs do not tell.

        They do not for a topic read from its beginning, for parts of a version, or a long way.
        """
        messages, size = {}, 0
        for name, (begin, end) in spans.items():
            found = _appended(settings, bronze_table(name), begin, end)
            if found is None:
                return None
            messages[name] = found[0]
            size += found[1]
        return cls(messages, size)


def _appended(
    settings: LakeSettings,
    table: TableSpec,
    begin: Mapping[str, Any] | None,
    end: Mapping[str, Any],
) -> tuple[int, int] | None:
    """Rows and bytes that were appended between two offsets of Spark's stream over a table."""
    if begin is None or not _is_between_versions(begin) or not _is_between_versions(end):
        return None
    versions = range(begin["reservoirVersion"], end["reservoirVersion"])
    if begin["reservoirId"] != end["reservoirId"] or len(versions) > MANY_VERSIONS:
        return None
    rows = size = 0
    for version in versions:
        commit = read_text(settings, f"{table.path(settings)}/_delta_log/{version:020d}.json")
        if commit is None:
            return None
        for line in commit.splitlines():
            action = json.loads(line)
            changed = [a for a in (action.get("add"), action.get("remove")) if a]
            if not any(each["dataChange"] for each in changed):
                continue
            stats = json.loads(action.get("add", {}).get("stats") or "{}")
            if "numRecords" not in stats:
                return None
            rows += stats["numRecords"]
            size += action["add"]["size"]
    return rows, size


def _is_between_versions(offset: Mapping[str, Any]) -> bool:
    return bool(offset["index"] == WHOLE_VERSION and not offset["isStartingVersion"])
