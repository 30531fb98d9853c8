"""Reads the changes of a table from its change feed, for the live page, without Spark."""

from __future__ import annotations

from typing import Any

from lake.tables.arrow import CHANGE_TYPE, COMMIT_VERSION
from lake.tables.spec import CHANGE_FEED
from lake.tables.table import Changes, Table
from lakehouse.console.masking import Masking
from lakehouse.console.tables import row_text
from lakehouse.console.tail.lines import Line

MOST_VERSIONS = 20  # that are read in a turn
KINDS = {"insert": "insert", "update_postimage": "update", "delete": "delete"}


class TableSource:
    """The changes of a table after its newest version. Used by one thread."""

    def __init__(self, table: Table, masking: Masking) -> None:
        self._table = table
        self._masking = masking
        self._next = table.newest_version() + 1

    def poll(self, most: int) -> tuple[list[Line], str]:
        """The rows that new versions have changed, and a note if some cannot be shown.

        Versions that only move rows have none.

        Args:
            most: the most rows to read.
        """
        newest = self._table.newest_version()
        if newest + 1 < self._next:  # the table was deleted and created again
            self._next = 0
        if self._next > newest:
            return [], ""
        since, note = self._next, ""
        if newest - since >= MOST_VERSIONS:
            since = newest - MOST_VERSIONS + 1
            note = "The table is faster than this page. Older versions were skipped."
        arrow = self._table.arrow
        has_feed = arrow.configuration(*CHANGE_FEED) == "true"
        until, has_changes = since - 1, False
        for version in range(since, min(newest, arrow.version) + 1):
            changes = self._table.changes(version)
            if problem := _problem(version, changes, has_feed=has_feed):
                if until < since:  # else it is said in the next turn
                    self._next = version + 1
                    return [], problem
                break
            until = version
            has_changes = has_changes or (changes is not None and changes.of_rows)
        self._next = until + 1
        if not has_changes:
            return [], note
        rows, has_more = arrow.first_changes(since, until, most)
        if has_more:
            note = f"Up to version {until:,}, more rows were changed."
        return [self._line(row) for row in rows], note

    def close(self) -> None:
        """Nothing is open."""

    def _line(self, row: dict[str, Any]) -> Line:
        kind = KINDS[row.pop(CHANGE_TYPE)]
        version = row.pop(COMMIT_VERSION)
        at, place = self._table.written_at(version), f"version {version:,}"
        layer, _, topic = self._table.full_name.partition(".")
        if layer == "bronze":
            payload = (row.get("payload") or b"").decode("utf-8", "backslashreplace")
            text, values = self._masking.line(topic, payload) if payload else ("", None)
            key = self._masking.key(topic, row.get("key"))
            return Line(at, kind, place, key, text, values)
        masked = self._masking.row(self._table.full_name, row)
        return Line(at, kind, place, "", row_text(masked), masked)


def _problem(version: int, changes: Changes | None, *, has_feed: bool) -> str:
    """Why the changes of a version cannot be shown; empty if they can, or are gone."""
    if changes is None:
        return ""
    if not changes.is_exact:
        # delta-rs would give rows that a deletion vector hides as inserted ones.
        return f"Version {version:,} deletes rows by a vector, so they are not known here."
    if changes.has_rewrites and not has_feed:
        # The feed would give all rows of the files as deleted, and those of others as inserted.
        why = f"Version {version:,} rewrites files, and the table keeps no change feed."
        return f"{why} Which rows it changes is not known."
    return ""
