"""The books of a batch (invariants 2 and 7): what came in is applied, superseded or quarantined."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from bronze.errors import LakehouseError
from silver.tables import RECONCILIATION


class ReconciliationError(LakehouseError):
    """A batch does not add up."""


@dataclass
class TopicBooks:
    """Counts of one topic in one batch; `messages_in` is counted on bronze, the rest on silver."""

    messages_in: int = 0
    decoded: int = 0
    quarantined: int = 0
    applied: int = 0
    waiting: int = 0

    @property
    def superseded(self) -> int:
        """Good messages that made no row: stale, or sent twice."""
        return self.decoded - self.quarantined - self.applied


class Books:
    """Counts of one batch by topic."""

    def __init__(self, batch_id: int) -> None:
        self.batch_id = batch_id
        self.topics: dict[str, TopicBooks] = {}

    def topic(self, name: str) -> TopicBooks:
        """The counts of a topic, new ones if it had none."""
        return self.topics.setdefault(name, TopicBooks())

    def totals(self) -> dict[str, int]:
        """Counts over all topics, for the log."""
        every = self.topics.values()
        return {
            "messages_in": sum(t.messages_in for t in every),
            "applied": sum(t.applied for t in every),
            "superseded": sum(t.superseded for t in every),
            "quarantined": sum(t.quarantined for t in every),
            "waiting": sum(t.waiting for t in every),
        }

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Rows for `silver.reconciliation`.

        Raises:
            ReconciliationError: a topic does not add up.
        """
        rows = []
        for name, books in self.topics.items():
            if books.decoded != books.messages_in or books.superseded < 0:
                message = (
                    f"Batch {self.batch_id} of silver does not add up for topic {name}: {books}. "
                    "A message was lost or made twice. Nothing is booked; keep bronze and silver "
                    "as they are and report this, or rebuild silver from bronze."
                )
                raise ReconciliationError(message)
            row = (self.batch_id, name, books.messages_in, books.applied, books.superseded)
            rows.append((*row, books.quarantined, books.waiting))
        schema = ", ".join(f"{c.name} {c.type}" for c in RECONCILIATION.columns)
        return spark.createDataFrame(rows, schema)
