"""Places in a query's streams, and moving its checkpoint to one: tables that go back to an older
version, or come from elsewhere, must have their checkpoint with them (invariant 6).
"""

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lake.durable import delete_durably, read_json, write_durably
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import (
    TOGETHER,
    Checkpoint,
    newest_batch,
    query_id,
    source_offsets,
    write_log,
)
from lake.tables.storage import open_table
from lake.tables.table import TableSpec
from pulsar_spark.errors import CheckpointError

BEGUN = "lakehouse.begun"
LOGS = ("offsets", "commits")
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True)
class Place:
    """Where a query stands when a batch is done.

    offsets: the batch's file in Spark's offset log.
    """

    batch: int
    offsets: str

    @classmethod
    def of(cls, settings: LakeSettings, query: str, batch: int) -> "Place | None":
        """The place after a batch, None if Spark has forgotten it: it keeps the last hundred."""
        file = Path(settings.checkpoint_path(query)) / "offsets" / str(batch)
        return cls(batch, file.read_text()) if file.exists() else None

    @classmethod
    def newest(cls, settings: LakeSettings, query: str) -> "Place | None":
        """The place after the last batch that was planned, None if there is none."""
        batch = newest_batch(settings, query)
        return None if batch is None else cls.of(settings, query, batch)

    @classmethod
    def of_table(cls, settings: LakeSettings, table: TableSpec, version: int) -> "Place | None":
        """The place after the last batch that a version of a query's own table has.

        None if it has none. The query has the name of the table, and notes its batches there.

        Raises:
            CheckpointError: Spark has forgotten it.
        """
        folder = Path(settings.checkpoint_path(table.full_name))
        delta = open_table(settings, table.path(settings), version)
        batch = delta.transaction_version(query_id(folder))
        if batch is None:  # nothing since the query began, or was moved
            return cls.begun(folder)
        place = cls.of(settings, table.full_name, batch)
        if place is None:
            message = (
                f"Spark has forgotten where {table.full_name} stood after batch {batch}: silver is "
                "too far behind bronze. Let it catch up first."
            )
            raise CheckpointError(message)
        return place

    @classmethod
    def begun(cls, checkpoint: Path) -> "Place | None":
        """The place that a query was moved to last; None if it never was, or to its beginning.

        Raises:
            CheckpointError: the file that has it is torn.
        """
        stored = read_json(checkpoint / BEGUN, TOGETHER, CheckpointError)
        return cls(**stored) if stored else None

    @property
    def ends(self) -> dict[str, Any]:
        """The offset of each source, as of `source_offsets`."""
        return source_offsets(self.offsets)

    def at(self, ends: dict[str, str]) -> "Place":
        """The same with other offsets, of sources that have names."""
        version, metadata, *_ = self.offsets.splitlines()
        lines = [f"{name}:{offset}" for name, offset in ends.items()]
        return Place(self.batch, "\n".join([version, metadata, *lines]))


def move(checkpoint: Checkpoint, place: Place | None) -> None:
    """Make a query go on behind a place, or from its beginning.

    It gets another id, and so do its batches: the tables may know those with the same numbers.

    What the query goes on from is written before anything old is deleted, so a process that is
    killed in between leaves a checkpoint that can be moved again. The caller sees to it that the
    query does not start until then (`Checkpoint.expect`).
    """
    folder = Path(checkpoint.path)
    write_durably(folder / BEGUN, json.dumps(asdict(place) if place else {}))
    write_log(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    checkpoint.begin_generation()
    kept = set() if place is None else {max(place.batch - 1, 0), place.batch}  # Spark reads two
    for log in LOGS:
        (folder / log).mkdir(exist_ok=True)
        for batch in sorted(kept):
            content = place.offsets if place and log == "offsets" else COMMIT
            write_log(folder / log / str(batch), content)
        old = [file for file in (folder / log).iterdir() if file.name not in map(str, kept)]
        delete_durably(*old)
