"""The audit table of accepted losses: what a query went on without, with its operator's consent."""

import datetime as dt
from dataclasses import dataclass, field

import pyarrow as pa

from pulsar_spark.offsets import Position
from pulsar_spark.records import append_record

# Grain: one range of a topic partition that was lost.
SCHEMA = pa.schema(
    [
        pa.field("recorded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("topic_partition", pa.string(), nullable=False),
        pa.field("behind", pa.string(), nullable=False),  # the last position before the loss
        pa.field("up_to", pa.string()),  # the last that was dropped, NULL if nobody knows
        pa.field("reason", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class LossTable:
    """The table: a folder, or an address with what delta-rs must know to reach it.

    Credentials are in neither; they are found where clients of the store look for them.
    """

    path: str
    storage: dict[str, str] = field(default_factory=dict)

    def record(
        self,
        subscription: str,
        partition: str,
        lost: tuple[Position, Position | None],
        why: str,
    ) -> None:
        """Add a loss to the table, which is made if it is absent; once, if called again."""
        behind, up_to = str(lost[0]), str(lost[1]) if lost[1] else None
        if (behind, up_to) in self._ranges(subscription, partition):
            return
        row = {
            "recorded_at": dt.datetime.now(dt.timezone.utc),
            "subscription": subscription,
            "topic_partition": partition,
            "behind": behind,
            "up_to": up_to,
            "reason": why,
        }
        append_record(self.path, pa.Table.from_pylist([row], SCHEMA), self.storage)

    def recorded(self, subscription: str, partition: str, after: Position) -> Position:
        """Up to where losses are recorded, one after the other, from a position on."""
        ranges = dict(self._ranges(subscription, partition))
        while (up_to := ranges.pop(str(after), None)) is not None:
            after = Position(*map(int, up_to.split(":")))
        return after

    def _ranges(self, subscription: str, partition: str) -> list[tuple[str, str | None]]:
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        try:
            table = deltalake.DeltaTable(self.path, storage_options=self.storage)
        except TableNotFoundError:
            return []
        whose = [("subscription", "=", subscription), ("topic_partition", "=", partition)]
        rows = table.to_pyarrow_table(columns=["behind", "up_to"], filters=whose).to_pylist()
        return [(row["behind"], row["up_to"]) for row in rows]
