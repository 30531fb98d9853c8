"""How far the imports of the topic file are. Needs neither Spark, the broker nor the database."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from lake.streams.given_up import given_up
from lake.tables.lake import Lake
from lakehouse.imports.published import FILE


@dataclass(frozen=True)
class ImportState:
    """The state of an import.

    name: `import.<name>`.
    rows: the number of rows that its topic holds; None if it has compared nothing yet.
    compared: when it last compared the table, by the clock of the database; None if it never has.
    problem: why it does not compare; empty if it does, or if it has not been started.
    """

    name: str
    rows: int | None = None
    compared: dt.datetime | None = None
    problem: str = ""

    @property
    def note(self) -> str:
        """The state in a few words."""
        if self.problem:
            return self.problem
        if self.compared is None:
            return "has compared nothing yet"
        return f"compared at {self.compared:%Y-%m-%d %H:%M:%S} UTC"


def import_states(lake: Lake) -> list[ImportState]:
    """The state of each declared import, in the order of the file."""
    return [_state(lake, each.label) for each in lake.topics.imports.values()]


def _state(lake: Lake, name: str) -> ImportState:
    stopped = given_up(lake.settings, name)
    problem = f"given up: {stopped.reason}" if stopped else ""
    file = Path(lake.settings.checkpoint_path(name)) / FILE
    rows = at = None
    with (
        contextlib.suppress(sqlite3.Error),  # it is absent, or another process is creating it
        contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db,
    ):
        at = db.execute("SELECT at FROM compared").fetchone()
        rows = db.execute("SELECT count(*) FROM rows").fetchone()[0] if at else None
    then = dt.datetime.fromtimestamp(at[0] / 1000, dt.timezone.utc) if at else None
    return ImportState(name, rows, then, problem)
