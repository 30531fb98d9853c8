"""Reads the changes of a table from its change feed, for the live page, without Spark."""

from __future__ import annotations

from typing import Any

from lake.tables.arrow import CHANGE_TYPE
from lake.tables.spec import CHANGE_FEED
from lake.tables.table import Table
from lakehouse.console.masking import Masking
from lakehouse.console.tables import row_text
from lakehouse.console.tail.lines import Line

KINDS = {"insert": "insert", "update_postimage": "update", "delete": "delete"}


class TableSource:
    """The changes of a table after its newest version. Used by one thread."""

    def __init__(self, table: Table, masking: Masking) -> None:
        self._table = table
        self._masking = masking
        self._next = table.newest_version() + 1

    def poll(self, most: int) -> tuple[list[Line], str]:
        """The rows that one version has changed, and a note if some cannot be shown.

        Versions that only move rows have none. Of a version, the first rows are read.

        Args:
            most: the most rows to read.
        """
        newest = self._table.newest_version()
        if newest + 1 < self._next:  # the table was deleted and created again
            self._next = 0
        while self._next <= newest and not self._table.has_changes(self._next):
            self._next += 1
        if self._next > newest:
            return [], ""
        version = self._next
        self._next += 1
        if not self._table.is_exact(version):
            # delta-rs would give rows that a deletion vector hides as inserted ones.
            return [], f"Version {version:,} deletes rows by a vector, so they are not known here."
        arrow = self._table.arrow
        if self._table.rewrites(version) and arrow.configuration(*CHANGE_FEED) != "true":
            # The feed would give all rows of the files as deleted, and those of others as inserted.
            why = f"Version {version:,} rewrites files, and the table keeps no change feed."
            return [], f"{why} Which rows it changes is not known."
        at = self._table.written_at(version)
        rows, has_more = arrow.first_changes(version, most)
        lines = [self._line(row, version, at) for row in rows]
        return lines, f"Version {version:,} changes more rows." if has_more else ""

    def close(self) -> None:
        """Nothing is open."""

    def _line(self, row: dict[str, Any], version: int, at: float | None) -> Line:
        kind = KINDS[row.pop(CHANGE_TYPE)]
        layer, _, topic = self._table.full_name.partition(".")
        if layer == "bronze":
            payload = (row.get("payload") or b"").decode("utf-8", "backslashreplace")
            text, values = self._masking.line(topic, payload) if payload else ("", None)
            key = self._masking.key(topic, row.get("key"))
            return Line(at, kind, f"version {version:,}", key, text, values)
        masked = self._masking.row(self._table.full_name, row)
        return Line(at, kind, f"version {version:,}", "", row_text(masked), masked)
