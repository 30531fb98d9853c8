"""Lands one batch of a topic in its bronze table, exactly once.

A small batch is collected in the driver and appended by delta-rs (`lake/tables/arrow.py`). Spark's
sink would first ask which batches the table has, for which Delta reads its whole log with a
three-stage job each time. A large batch is written by Spark's tasks. Both ways record the batch in
the table under the query's id, as Spark's sink does, so that a replay of the batch is recognised.

The planner's estimate decides between the two, so that no message is read twice. Only a batch with
far more messages than estimated is read again.
"""

from functools import cached_property

from pyspark.sql import DataFrame

from bronze.upkeep import BronzeUpkeep
from lake.streams.checkpoint import BatchSpan, Checkpoint, query_id
from lake.tables.lake import Lake
from lake.tables.table import Table
from pulsar_spark.offsets import Estimate, estimate_of

FEW = 50_000  # messages; as many may wait for a stream that was down for a minute
DRIVER_BYTES = 128 << 20
GROWTH = 16  # bytes in memory per byte at the broker, unless a batch has shown that it is more
ENOUGH_BYTES = 1 << 20  # a smaller batch says little about growth
CAUTION = 256  # divides DRIVER_BYTES for a repeated batch, which may have killed the driver


class Landing:
    """Lands the batches of one query. `land` is its `foreachBatch` function."""

    def __init__(self, lake: Lake, table: Table, checkpoint: Checkpoint) -> None:
        self._path = table.path
        self._table = table.arrow
        self._checkpoint = checkpoint
        self._repeats = checkpoint.unfinished
        self._upkeep = BronzeUpkeep(lake, table, checkpoint)
        self._growth: float = GROWTH
        self._more = 1.0  # messages in the last batch per estimated message, at least 1

    def land(self, batch: DataFrame, span: BatchSpan) -> None:
        """Append the messages of a batch, and maintain the table now and then.

        After a crash, Spark calls it again with the same batch. Messages that are in the table
        already are not appended again.
        """
        self._append(batch, span)
        self._upkeep.run(span.id)

    def _append(self, batch: DataFrame, span: BatchSpan) -> None:
        """Append the messages of a batch, from the driver or from Spark's tasks."""
        [stored] = span.ends.values()
        estimate = estimate_of(stored)
        self._table.refresh()
        if estimate and self._is_small(estimate, is_repeated=span.id == self._repeats):
            messages = batch.limit(2 * FEW + 1).toArrow()
            self._learn(estimate, messages.num_rows, messages.nbytes)
            if messages.num_rows <= 2 * FEW:
                self._table.append_once(messages, self._query, span.id)
                return
            del messages
        before = self._table.count_rows()
        (
            batch.write.format("delta")
            .mode("append")
            .option("txnAppId", self._query)
            .option("txnVersion", span.id)
            .save(self._path)
        )
        self._table.refresh()
        if estimate:
            self._learn(estimate, self._table.count_rows() - before)

    def _is_small(self, estimate: Estimate, *, is_repeated: bool) -> bool:
        """Whether a batch fits into the driver's memory and is faster to append from there."""
        room = DRIVER_BYTES // CAUTION if is_repeated else DRIVER_BYTES
        return estimate.messages * self._more <= FEW and estimate.bytes * self._growth <= room

    def _learn(self, estimate: Estimate, messages: int, size: int = 0) -> None:
        """Record by how much a batch exceeded its estimate.

        Args:
            estimate: the estimate of the batch.
            messages: the number of its messages.
            size: the bytes that they took in memory, 0 if unknown.
        """
        self._more = max(messages / max(estimate.messages, 1), 1)
        if size >= ENOUGH_BYTES:
            self._growth = max(size / max(estimate.bytes, 1), GROWTH)

    @cached_property
    def _query(self) -> str:
        """The id of the query. Its checkpoint contains the id once the query has started."""
        return query_id(self._checkpoint.path)
