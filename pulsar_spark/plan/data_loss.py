"""The audit table of accepted losses: what a query skipped with its operator's consent."""

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
        pa.field("up_to", pa.string()),  # the last lost position, NULL if unknown
        pa.field("reason", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class LossTable:
    """The audit table.

    path: a folder or an address.
    storage: options that delta-rs needs to reach the address. They contain no credentials, which
        are found where clients of the store look for them.
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
        """Append a loss to the table, which is created if it does not exist.

        Does nothing if the loss is recorded already.

        Args:
            subscription: the subscription of the query.
            partition: the topic partition.
            lost: the last position before the loss, and the last lost one (None if unknown).
            why: the reason of the loss.
        """
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
        """The position up to which recorded losses follow one another from `after` on.

        It is `after` itself if no loss is recorded there.
        """
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
