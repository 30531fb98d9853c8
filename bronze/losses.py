"""The audit table of accepted losses: what a query went on without, by its operator's word."""

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import pyarrow as pa

from bronze.offsets import Position

# Grain: one topic partition whose messages were lost, at one start of a query.
SCHEMA = pa.schema(
    [
        pa.field("recorded_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("topic_partition", pa.string(), nullable=False),
        pa.field("behind", pa.string(), nullable=False),  # the last position that was read
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
        """Add a loss to the table, which is made if it is absent."""
        behind, up_to = lost
        row = {
            "recorded_at": dt.datetime.now(dt.timezone.utc),
            "subscription": subscription,
            "topic_partition": partition,
            "behind": str(behind),
            "up_to": str(up_to) if up_to else None,
            "reason": why,
        }
        if "://" not in self.path:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        deltalake.write_deltalake(
            self.path,
            pa.Table.from_pylist([row], SCHEMA),
            mode="append",
            storage_options=self.storage,
        )
