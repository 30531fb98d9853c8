"""Places in a query's streams, and moving its checkpoint to one: tables that go back to an older
version, or come from elsewhere, must have their checkpoint with them (invariant 6).
"""

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bronze.checkpoint import Checkpoint, newest_batch, query_id, source_offsets
from bronze.errors import CheckpointError
from bronze.settings import LakeSettings
from bronze.storage import open_table
from bronze.tables import TableSpec

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
            begun = folder / BEGUN
            stored = json.loads(begun.read_text()) if begun.exists() else None
            return cls(**stored) if stored else None
        place = cls.of(settings, table.full_name, batch)
        if place is None:
            message = (
                f"Spark has forgotten where {table.full_name} stood after batch {batch}: silver is "
                "too far behind bronze. Let it catch up first."
            )
            raise CheckpointError(message)
        return place

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
    """
    folder = Path(checkpoint.path)
    for log in LOGS:
        (folder / log).mkdir(exist_ok=True)
        for file in (folder / log).iterdir():
            file.unlink()
    (folder / ".metadata.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old one
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    checkpoint.begin_generation()
    (folder / BEGUN).write_text(json.dumps(asdict(place) if place else None))
    if place is not None:
        for batch in {max(place.batch - 1, 0), place.batch}:  # Spark reads the last two
            (folder / "offsets" / str(batch)).write_text(place.offsets)
            (folder / "commits" / str(batch)).write_text(COMMIT)
