"""One batch of a topic into its bronze table, once.

A small batch is collected and appended by delta-rs (`direct.py`): Spark's sink asks, before it
writes, which batches the table has, and Delta reads its whole log for that with a job of three
stages, each time. A large one is written by Spark's tasks. Both note the batch in the table under
the id of the query, as Spark's sink does, and a replay of the batch is recognised by it.

The planner's estimate decides which way a batch takes, so that no message is read twice. Only a
batch with far more messages than estimated is read again.
"""

from functools import cached_property

from pyspark.sql import DataFrame

from bronze.upkeep import BronzeUpkeep
from lake.settings.settings import LakeSettings
from lake.streams.checkpoint import Checkpoint, query_id
from lake.tables.arrow import DirectTable
from lake.tables.table import TableSpec
from pulsar_spark.offsets import Estimate, estimate_of

FEW = 50_000  # messages, which also a stream has waiting that was away for a minute
DRIVER_BYTES = 128 << 20
GROWTH = 16  # bytes in memory for each byte at the broker, until a batch shows that it is more
ENOUGH_BYTES = 1 << 20  # a batch with fewer says little about growth
CAUTION = 256  # a batch that was under way when the driver died may have been too large for it


class Landing:
    """Lands the batches of one query."""

    def __init__(self, settings: LakeSettings, table: TableSpec, checkpoint: Checkpoint) -> None:
        self._path = table.path(settings)
        self._table = DirectTable(table, settings)
        self._checkpoint = checkpoint
        self._repeats = checkpoint.unfinished
        self._upkeep = BronzeUpkeep(settings, table, checkpoint)
        self._growth: float = GROWTH
        self._more = 1.0  # how many times the estimated messages the last batch had

    def land(self, batch: DataFrame, batch_id: int) -> None:
        """Append the messages of a batch, and see to the table now and then.

        Called again with the same batch after a crash, it appends nothing if they are there.
        """
        self._append(batch, batch_id)
        self._upkeep.run(batch_id)

    def _append(self, batch: DataFrame, batch_id: int) -> None:
        """By the driver, or by Spark's tasks."""
        [stored] = self._checkpoint.ends(batch_id).values()
        estimate = estimate_of(stored)
        self._table.refresh()
        if estimate and self._is_small(estimate, is_repeated=batch_id == self._repeats):
            messages = batch.limit(2 * FEW + 1).toArrow()
            self._learn(estimate, messages.num_rows, messages.nbytes)
            if messages.num_rows <= 2 * FEW:
                self._table.append_once(messages, self._query, batch_id)
                return
            del messages
        before = self._table.count_rows()
        (
            batch.write.format("delta")
            .mode("append")
            .option("txnAppId", self._query)
            .option("txnVersion", batch_id)
            .save(self._path)
        )
        self._table.refresh()
        if estimate:
            self._learn(estimate, self._table.count_rows() - before)

    def _is_small(self, estimate: Estimate, *, is_repeated: bool) -> bool:
        """Whether the driver can hold a batch, and is faster with it than Spark's tasks."""
        room = DRIVER_BYTES // CAUTION if is_repeated else DRIVER_BYTES
        return estimate.messages * self._more <= FEW and estimate.bytes * self._growth <= room

    def _learn(self, estimate: Estimate, messages: int, size: int = 0) -> None:
        """Note how far an estimate was exceeded.

        Args:
            estimate: the estimate of a batch.
            messages: number of messages that the batch had.
            size: bytes that they took in memory, if known.
        """
        self._more = max(messages / max(estimate.messages, 1), 1)
        if size >= ENOUGH_BYTES:
            self._growth = max(size / max(estimate.bytes, 1), GROWTH)

    @cached_property
    def _query(self) -> str:
        """The id of the query; its checkpoint has it since the query was started."""
        return query_id(self._checkpoint.path)
