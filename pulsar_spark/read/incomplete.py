"""The table `bronze.incomplete_messages`: chunked messages of which a batch has read only a part.

A producer sends the chunks of a message one after the other, so a batch may end between two of
them. The message lands in the batch that holds its last chunk. It is recorded here as `open` until
then, and as `complete` afterwards. A message that stays open belongs to a producer that died. A
message is `lost` if its last chunk exists, but no first chunks were found within ten minutes of it.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pulsar_spark.offsets import Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.records import KEPT_DAYS, append_record

if TYPE_CHECKING:
    from deltalake import DeltaTable

NAME = "incomplete_messages"
OPEN, COMPLETE, LOST = "open", "complete", "lost"
BOUND_MS = 600_000  # the chunks of a message are waited and searched for only so long

# One row for each message at the end of a task that has read some of its chunks. A task that runs
# again may add the same row again.
SCHEMA = pa.schema(
    [
        pa.field("recorded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("topic_partition", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),  # producer and sequence id
        pa.field("first_chunk", pa.string(), nullable=False),  # position of the first chunk read
        pa.field("last_chunk", pa.string(), nullable=False),  # position of the last chunk read
        pa.field("chunks_read", pa.int32(), nullable=False),
        pa.field("chunks", pa.int32(), nullable=False),
        pa.field("publish_time_ms", pa.int64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),  # open, complete, lost
    ]
)


class Incomplete(NamedTuple):
    """A row of the table, described in `SCHEMA`."""

    topic_partition: str
    message: str
    first: Position
    last: Position
    chunks_read: int
    chunks: int
    publish_time_ms: int
    state: str


@dataclass(frozen=True)
class IncompleteTable:
    """The table. Tasks write to it directly, so its rows stay even if their batch is run again.

    path: a folder or an address; None if nothing is to be recorded.
    storage: options that delta-rs needs to reach the address.
    """

    path: str | None
    storage: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: PulsarOptions) -> "IncompleteTable":
        """The table named in the options of a reader."""
        return cls(options.incomplete_table, options.data_loss_storage)

    def record(self, messages: Sequence[Incomplete]) -> None:
        """Append rows to the table, which is created if it does not exist."""
        if not messages or self.path is None:
            return
        now = dt.datetime.now(dt.timezone.utc)
        rows = [(now, m[0], m[1], str(m.first), str(m.last), *m[4:]) for m in messages]
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.Table.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        append_record(self.path, table, self.storage, _drop_completed)

    def first_chunks(self, now_ms: int) -> dict[str, Position]:
        """The first chunk of a message that may still be completed, the earliest per partition.

        A message whose last chunk came more than `BOUND_MS` before `now_ms` is not waited for.
        """
        found: dict[str, Position] = {}
        for row in self._newest():
            if row["state"] == OPEN and row["publish_time_ms"] > now_ms - BOUND_MS:
                name = row["topic_partition"]
                first = Position(*map(int, row["first_chunk"].split(":")))
                found[name] = min(first, found.get(name, first))
        return found

    def still_open(self, older_than: dt.timedelta) -> list[dict[str, Any]]:
        """The messages that are lost, or have been open for longer than `older_than`.

        Returns:
            The newest row of each message, as a dictionary, oldest message first.
        """
        bound = dt.datetime.now(dt.timezone.utc) - older_than
        return [
            r
            for r in self._newest()
            if r["state"] == LOST or (r["state"] == OPEN and r["recorded_at"] < bound)
        ]

    def _newest(self) -> list[dict[str, Any]]:
        """The newest row of each message, oldest message first."""
        if self.path is None or ("://" not in self.path and not Path(self.path).exists()):
            return []
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        try:
            table = deltalake.DeltaTable(self.path, storage_options=self.storage)
        except TableNotFoundError:
            return []
        return _newest(table)


def _drop_completed(table: "DeltaTable") -> None:
    """Delete old rows, except the newest row of each message that is not complete."""
    import deltalake

    old = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=KEPT_DAYS)
    left = [r for r in _newest(table) if r["state"] != COMPLETE and r["recorded_at"] < old]
    deltalake.write_deltalake(
        table,
        pa.Table.from_pylist(left, SCHEMA),
        mode="overwrite",
        predicate=f"recorded_at < '{old.isoformat()}'",
    )


def _newest(table: "DeltaTable") -> list[dict[str, Any]]:
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda r: r["recorded_at"])
    return list({(r["topic_partition"], r["message"]): r for r in rows}.values())
