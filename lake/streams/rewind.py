"""Moves the checkpoint of a query to another place in its streams.

If a table goes back to an older version, or comes from elsewhere, its checkpoint must go to the
same place (invariant 6).
"""

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import (
    LOCK,
    TOGETHER,
    UNFINISHED,
    Checkpoint,
    newest_batch,
    query_id,
    source_offsets,
    write_log,
)
from lake.streams.given_up import GIVEN_UP
from lake.streams.last_errors import ERRORS
from lake.tables.lake import Lake
from lake.tables.spec import TableSpec
from pulsar_spark.errors import CheckpointError

BEGUN = "lakehouse.begun"
LOGS = ("offsets", "commits")
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True)
class Place:
    """The place of a query in its streams after a batch.

    offsets: the content of the batch's file in Spark's offset log.
    """

    batch: int
    offsets: str

    @classmethod
    def of(cls, settings: LakeSettings, query: str, batch: int) -> "Place | None":
        """The place after a batch; None if Spark no longer has it. It keeps a hundred batches."""
        file = Path(settings.checkpoint_path(query)) / "offsets" / str(batch)
        return cls(batch, file.read_text()) if file.exists() else None

    @classmethod
    def newest(cls, settings: LakeSettings, query: str) -> "Place | None":
        """The place after the last planned batch; None if there is none."""
        batch = newest_batch(settings, query)
        return None if batch is None else cls.of(settings, query, batch)

    @classmethod
    def of_table(cls, lake: Lake, table: TableSpec, version: int) -> "Place | None":
        """The place after the last batch that a version of a query's own table contains.

        The query has the same name as the table, and records its batches in the table. None if the
        query stood at its beginning.

        Raises:
            CheckpointError: Spark no longer has the place.
        """
        folder = Path(lake.settings.checkpoint_path(table.full_name))
        delta = lake.table(table).log(version)
        batch = delta.transaction_version(query_id(folder))
        if batch is None:  # the query has written nothing since it began or was moved
            return cls.begun(folder)
        place = cls.of(lake.settings, table.full_name, batch)
        if place is None:
            message = (
                f"Spark no longer knows the position of {table.full_name} after batch {batch}, "
                "because silver is too far behind bronze. Let silver catch up first."
            )
            raise CheckpointError(message)
        return place

    @classmethod
    def begun(cls, checkpoint: Path) -> "Place | None":
        """The place to which a query was last moved; None if to its beginning, or never.

        Raises:
            CheckpointError: the file that contains the place is torn.
        """
        stored = read_json(checkpoint / BEGUN, TOGETHER, CheckpointError)
        return cls(**stored) if stored else None

    @property
    def ends(self) -> dict[str, Any]:
        """The offset of each source, as returned by `source_offsets`."""
        return source_offsets(self.offsets)

    def at(self, ends: dict[str, str]) -> "Place":
        """This place with other offsets, by the names of their sources."""
        version, metadata, *_ = self.offsets.splitlines()
        lines = [f"{name}:{offset}" for name, offset in ends.items()]
        return Place(self.batch, "\n".join([version, metadata, *lines]))

    def stored(self) -> str:
        """The content of the file `BEGUN`, by which a query knows that it began here."""
        return json.dumps(asdict(self))

    def at_offset(self, offset: str) -> "Place":
        """This place with another offset of its only source, which has no name."""
        version, metadata, *_ = self.offsets.splitlines()
        return Place(self.batch, "\n".join([version, metadata, offset]))


def move(checkpoint: Checkpoint, place: Place | None) -> None:
    """Make a query continue after a place, or from its beginning (None).

    The query and its batches get new ids, because the tables may have other batches with the same
    numbers.

    The new files are written before old ones are deleted, so a process that is killed in between
    leaves a checkpoint that can be moved again. The caller must prevent the query from starting
    until then (`Checkpoint.expect`).
    """
    folder = Path(checkpoint.path)
    write_durably(folder / BEGUN, place.stored() if place else "{}")
    write_log(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    checkpoint.begin_generation()
    kept = log_files(place)
    for log in LOGS:
        (folder / log).mkdir(exist_ok=True)
    for name, content in kept.items():
        write_log(folder / name, content)
    for log in LOGS:
        old = [file for file in (folder / log).iterdir() if f"{log}/{file.name}" not in kept]
        delete_durably(*old)


def frozen(checkpoint: Path, place: Place | None) -> dict[str, str]:
    """The files of a checkpoint that stands at a place, with its ids. Its query may be running.

    Called by `lakehouse backup`. Only the query itself may write the tables of the place and of
    such a checkpoint afterwards, so its batches need no new ids.

    Returns:
        The content of each file by its path within the checkpoint.
    """
    known = [file for file in checkpoint.iterdir() if file.is_file() and _is_kept(file.name)]
    return {**{file.name: file.read_text() for file in known}, **log_files(place)}


def _is_kept(name: str) -> bool:
    of_run = (UNFINISHED, LOCK, GIVEN_UP, ERRORS)
    return name not in of_run and not name.startswith(".")  # drafts, and Hadoop's checksums


def log_files(place: Place | None) -> dict[str, str]:
    """The files of Spark's two logs that make a query continue after a place, by their path."""
    if place is None:
        return {}
    found = {}
    for batch in sorted({max(place.batch - 1, 0), place.batch}):  # Spark reads both
        found[f"offsets/{batch}"] = place.offsets
        found[f"commits/{batch}"] = COMMIT
    return found
