"""What the topic of an import holds: for each key, a checksum of its latest message.

It is a copy of what follows from the topic up to a position, in a small database beside the lock of
the stream. Rows and position change in one transaction. After a crash, the import reads what the
topic has after the position. The copy may therefore be behind the topic, or be lost, but it never
disagrees with the topic: a value that was published just before a kill is known afterwards, even if
the table has its former value again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lakehouse.imports.source import Row
from pulsar_spark.errors import CheckpointError

FILE = "lakehouse.published"
PAGE = 10_000
# Deleted keys are overwritten, because a key may be that of a person.
SETUP = """
PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
  partition TEXT PRIMARY KEY, created INTEGER NOT NULL, id BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS compared (only INTEGER PRIMARY KEY, at INTEGER NOT NULL);
"""


class Change(NamedTuple):
    """A message to publish. Without a payload, it deletes the key."""

    key: bytes
    payload: bytes


class Partition(NamedTuple):
    """A partition of the topic, and when it was created, which tells it from a later one."""

    name: str
    created: int


class Published:
    """The copy. It belongs to the thread that opens it.

    Raises:
        CheckpointError: the file is damaged.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._whole(), ExitStack() as undo:
            self._db = sqlite3.connect(file, isolation_level=None)
            undo.callback(self._db.close)
            self._db.executescript(SETUP)
            undo.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def positions(self, partitions: Sequence[Partition]) -> dict[str, bytes]:
        """The serialized id of the last message that is known, for each partition that has one.

        If one of the partitions was deleted or made again, everything is forgotten.
        """
        with self._whole():
            found = self._db.execute("SELECT partition, created, id FROM positions").fetchall()
            if {Partition(name, created) for name, created, _ in found} <= {*partitions}:
                return {name: id_ for name, _, id_ in found}
            with self._transaction():
                for table in ("rows", "positions"):
                    self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant
        return {}

    def keep(self, changes: Iterable[Change], ends: Mapping[Partition, bytes]) -> None:
        """Note changes that the topic holds, and the ids of its last messages, in one transaction.

        Args:
            changes: the changes in the order of the topic.
            ends: for partitions, the serialized id of the last message.
        """
        with self._whole(), self._transaction():
            for key, payload in changes:
                if payload:
                    row = (key, digest(payload))
                    self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", row)
                else:
                    self._db.execute("DELETE FROM rows WHERE key = ?", (key,))
            for (name, created), id_ in ends.items():
                place = (name, created, id_)
                self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", place)

    def differences(self, rows: Iterable[Row]) -> Iterator[Change]:
        """The changes that make the topic say what a table has.

        Changes that were yielded may be kept meanwhile.

        Args:
            rows: all rows of the table, in the order of their keys.
        """
        known = self._rows()
        there = next(known, None)
        for key, payload in rows:
            while there is not None and there[0] < key:
                yield Change(there[0], b"")
                there = next(known, None)
            is_known = there is not None and there[0] == key
            if not is_known or (there and there[1] != digest(payload)):
                yield Change(key, payload)
            if is_known:
                there = next(known, None)
        while there is not None:
            yield Change(there[0], b"")
            there = next(known, None)

    def compared_at(self) -> int | None:
        """When the table was last compared, in epoch milliseconds; None if it never was."""
        found = self._db.execute("SELECT at FROM compared").fetchone()
        return int(found[0]) if found else None

    def note_compared(self, at: int) -> None:
        """Note when the table was compared, in epoch milliseconds."""
        with self._whole():
            self._db.execute("INSERT OR REPLACE INTO compared VALUES (1, ?)", (at,))

    def _rows(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and checksums in the order of the keys, by pages, so that others may change."""
        last = b""
        while True:
            with self._whole():
                page = self._db.execute(
                    "SELECT key, digest FROM rows WHERE key > ? ORDER BY key LIMIT ?", (last, PAGE)
                ).fetchall()
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1][0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError:
            raise  # such as a full disk, which may pass
        except sqlite3.DatabaseError as error:
            message = f"{self._file} is damaged: {error}."
            remedy = "Delete it: the import then reads its topic again from the beginning."
            raise CheckpointError(message, remedy) from error


def digest(payload: bytes) -> bytes:
    """The checksum of a payload."""
    return sha256(payload).digest()
