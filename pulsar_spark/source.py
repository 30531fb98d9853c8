"""The Pulsar data source: `format("pulsar")`, for streams and for batch queries.

Guarantee: every message of the topics is read once, in batches that a restart repeats exactly,
because only the offsets in Spark's checkpoint count. Parallelism: one task per topic partition,
more for a large one. Output: the envelope of `pulsar_spark/schema.py`, with the payload as bytes.

    from pulsar_spark.source import PulsarDataSource
    spark.dataSource.register(PulsarDataSource)
    spark.readStream.format("pulsar").options(serviceUrl=..., adminUrl=..., topic=..., ...).load()
    spark.read.format("pulsar").options(..., startingTimestamp="2026-01-01T00:00:00Z").load()
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pulsar_spark.eras import partitionings, with_partitionings
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import START, Offset, OffsetJson, from_json, to_json, with_estimate
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.tasks import ReadTask
from pulsar_spark.schema import ENVELOPE_DDL

if TYPE_CHECKING:
    from pulsar_spark.plan.planning import Planner
    from pulsar_spark.plan.retention_guard import RetentionGuard
    from pulsar_spark.sink import PulsarBatchWriter, PulsarStreamWriter


class PulsarDataSource(DataSource):
    """`format("pulsar")`; see `PulsarOptions` for the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pulsar"

    def schema(self) -> str:
        """The envelope: position, key, payload, times, properties, schema version."""
        return ENVELOPE_DDL

    def streamReader(self, schema: StructType) -> "PulsarStreamReader":
        """The reader of one streaming query."""
        return PulsarStreamReader(PulsarOptions.parse(dict(self.options)))

    def reader(self, schema: StructType) -> "PulsarBatchReader":
        """The reader of one batch query."""
        return PulsarBatchReader(PulsarOptions.parse(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PulsarStreamWriter":
        """The writer of one streaming query."""
        from pulsar_spark.sink import PulsarStreamWriter, SinkOptions

        return PulsarStreamWriter(SinkOptions.parse(dict(self.options), schema))

    def writer(self, schema: StructType, overwrite: bool) -> "PulsarBatchWriter":
        """The writer of a batch query; it can only append."""
        from pulsar_spark.sink import PulsarBatchWriter, SinkOptions

        if overwrite:
            message = "A topic cannot be overwritten; use mode('append')."
            raise SettingsError(message)
        return PulsarBatchWriter(SinkOptions.parse(dict(self.options), schema))


def read(options: PulsarOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of one task. Runs in a worker. A retry has the same result."""
    if not isinstance(partition, ReadTask):  # Spark passes one of its own if there is no task
        return iter(())
    # Imported here because only these workers need the client, and planning would pay for it.
    from pulsar_spark.read.reader import read_ranges

    return read_ranges(options, partition.ranges)


class PulsarBatchReader(DataSourceReader):
    """Reads the messages between the starting and the ending bound of the options once."""

    def __init__(self, options: PulsarOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks of the query."""
        from pulsar_spark.broker.admin import PulsarAdmin
        from pulsar_spark.plan.planning import Planner

        with PulsarAdmin(self._options.connection) as admin:
            planner = Planner(self._options, admin)
            last = planner.last_positions()
            bound = self._options.ending
            ending = last if bound == "latest" else planner.resolve(bound)
            begun = planner.resolve(self._options.starting)
            end = {name: min(ending.get(name, START), p) for name, p in last.items()}
            end = {name: p for name, p in end.items() if p > begun.get(name, START)}
            order = self._options.partitionings or planner.partitionings({}, {})
            return planner.tasks(begun, end, order)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read(self._options, partition)


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of one streaming query.

    Lives in one Python process beside the driver as long as the query runs. Only `read` runs in
    workers, and it uses nothing of this state but the options.
    """

    def __init__(self, options: PulsarOptions) -> None:
        if not options.subscription:
            message = (
                "Option 'subscription' of format(\"pulsar\") is missing: a stream needs a durable "
                "subscription, so that the broker keeps unread messages. Use a different one for "
                "each query."
            )
            raise SettingsError(message)
        self._options = options
        self._target: Offset | None = None
        self._last: Offset = {}
        self._waiting: dict[str, tuple[int, int]] = {}
        self._tools: tuple[Planner, RetentionGuard] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state that is sent to the workers, without the connection."""
        return {**self.__dict__, "_tools": None}

    def initialOffset(self) -> OffsetJson:
        """The offset at which a new checkpoint begins. Also creates the durable subscriptions."""
        planner, guard = self._open()
        begun = planner.resolve(self._options.starting)
        planner.last_positions()
        guard.begin(planner.known_partitions, begun)
        return with_partitionings(begun, planner.partitionings(begun, {}))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit shown by Spark: of messages, or else of bytes. `latestOffset` applies both."""
        if self._options.max_messages_per_trigger is not None:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the offset at which this run ends, so that it ends even if producers continue."""
        self._target = self._open()[0].last_positions()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """The offset at which the next batch ends. Called by the driver for each trigger."""
        planner, guard = self._open()
        stood = from_json(start)
        if self._target is None:
            self._last = planner.last_positions()
        else:
            planner.look()
            self._last = self._target
        guard.check(planner.states, stood)
        begun = {n: p for n, p in guard.resume(stood).items() if n in planner.states}  # not deleted
        end = {n: p for n, p in self._last.items() if planner.is_news(n, begun.get(n, START), p)}
        if not isinstance(limit, ReadAllAvailable):  # Trigger.Once asks for everything
            end = planner.limited(begun, end)
        end = {**begun, **end}
        self._waiting = planner.waiting(end, self._last)
        if end == stood:  # a changed partitioning is stored with the next messages
            return start
        order = planner.partitionings(stood, partitionings(start))
        return with_estimate(with_partitionings(end, order), planner.estimate(begun, end))

    def reportLatestOffset(self) -> OffsetJson:
        """The ends of the topics, and what is left after this batch, for the query's progress."""
        lag = {
            name: {"entriesBehind": entries, "bytesBehind": size}
            for name, (entries, size) in self._waiting.items()
        }
        return {name: {**position, **lag[name]} for name, position in to_json(self._last).items()}

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """The tasks of a batch, which an earlier run may have planned."""
        planner, guard = self._open()
        begun, until = from_json(start), from_json(end)
        if not guard.has_checked(begun):
            planner.look()
            guard.check(planner.states, begun)
        return planner.tasks(guard.resume(begun, until), until, partitionings(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read(self._options, partition)

    def commit(self, end: OffsetJson) -> None:
        """Let the broker drop the messages that are on disk now.

        If a crash prevents this call, the broker keeps more messages than necessary.
        """
        self._open()[1].move(from_json(end))

    def stop(self) -> None:
        """Close the connection of the planner."""
        if self._tools is not None:
            self._tools[0].admin.close()
            self._tools = None

    def _open(self) -> "tuple[Planner, RetentionGuard]":
        # Imported here because only planning needs it, and every worker would pay for it.
        from pulsar_spark.broker.admin import PulsarAdmin
        from pulsar_spark.plan.data_loss import LossTable
        from pulsar_spark.plan.planning import Planner
        from pulsar_spark.plan.retention_guard import RetentionGuard
        from pulsar_spark.read.incomplete import IncompleteTable

        if self._tools is None:
            planner = Planner(self._options, PulsarAdmin(self._options.connection))
            path, storage = self._options.data_loss_table, self._options.data_loss_storage
            losses = LossTable(path, storage) if path else None
            guard = RetentionGuard(
                planner.admin,
                self._options.subscription or "",
                losses,
                IncompleteTable.of(self._options),
            )
            self._tools = planner, guard
        return self._tools
