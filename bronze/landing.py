"""One batch of a topic into its bronze table, once.

A small batch is collected and appended by delta-rs (`direct.py`): Spark's sink asks, before it
writes, which batches the table has, and Delta reads its whole log for that with a job of three
stages, each time. A large one is written by Spark's tasks. Both note the batch in the table under
the id of the query, as Spark's sink does, and a replay of the batch is recognised by it.
"""

from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from bronze.checkpoint import Checkpoint, query_id
from bronze.direct import DirectTable
from bronze.durable import write_durably
from bronze.settings import LakeSettings
from bronze.tables import TableSpec
from bronze.upkeep import BronzeUpkeep

FEW = 50_000  # messages, which also a stream has waiting that was away for a minute
FEW_AT_FIRST = 50  # as each may have the 5 MB that a broker allows
DRIVER_BYTES = 128 << 20
LEARNT = "lakehouse.few"  # in the checkpoint: how many are few, for the next start


class Landing:
    """Lands the batches of one query."""

    def __init__(self, settings: LakeSettings, table: TableSpec, checkpoint: Checkpoint) -> None:
        self._path = table.path(settings)
        self._table = DirectTable(table, settings)
        self._checkpoint = checkpoint.path
        self._upkeep = BronzeUpkeep(settings, table, checkpoint)
        self._learnt = Path(checkpoint.path, LEARNT)
        self._few = min(FEW, self._few_at_first(checkpoint))
        self._expects_few = True

    def land(self, batch: DataFrame, batch_id: int) -> None:
        """Append the messages of a batch, and see to the table now and then.

        Called again with the same batch after a crash, it appends nothing if they are there.
        """
        self._append(batch, batch_id)
        self._upkeep.run(batch_id)

    def _append(self, batch: DataFrame, batch_id: int) -> None:
        """By the driver, or by Spark's tasks.

        A backlog is read in vain up to a few messages of each partition, in its first batch alone.
        """
        self._table.refresh()
        if self._expects_few:
            messages, few = self._collect(batch)
            if messages.num_rows > few < self._few:  # more are few than was known
                messages, few = self._collect(batch)
            if messages.num_rows <= few:
                self._table.append_once(messages, self._query, batch_id)
                return
        before = self._table.count_rows()
        (
            batch.write.format("delta")
            .mode("append")
            .option("txnAppId", self._query)
            .option("txnVersion", batch_id)
            .save(self._path)
        )
        self._table.refresh()
        self._expects_few = self._table.count_rows() - before <= self._few

    def _collect(self, batch: DataFrame) -> tuple[pa.Table, int]:
        """The messages if they are few, else one more; and how many were few.

        Learns how many messages such as these the driver can hold.
        """
        few = self._few
        messages = batch.limit(few + 1).toArrow()
        if messages.num_rows:
            self._few = min(FEW, DRIVER_BYTES * messages.num_rows // messages.nbytes)
            if not few // 2 < self._few < few * 2:
                write_durably(self._learnt, str(self._few))
        return messages, few

    def _few_at_first(self, checkpoint: Checkpoint) -> int:
        """As was learnt, but for a batch that has begun before: it may have been too large."""
        is_whole = checkpoint.unfinished is None
        known = self._learnt.read_text() if is_whole and self._learnt.exists() else ""
        return int(known) if known.isdecimal() else FEW_AT_FIRST

    @cached_property
    def _query(self) -> str:
        """The id of the query; its checkpoint has it since the query was started."""
        return query_id(self._checkpoint)
