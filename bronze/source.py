"""The Pulsar data source: `spark.readStream.format("pulsar")`.

Guarantee: every message of the topic once, in batches that a restart repeats exactly, as the
offsets of Spark's checkpoint are the truth. Parallelism: one task per topic partition. Emitted:
the envelope of `bronze/tables.py`, payload as bytes.

The durable subscription is not read from. It only tells the broker what must be kept: it stands
at the last committed position, and its absence tells that the topic is not the one we knew.

    from bronze.source import PulsarDataSource
    spark.dataSource.register(PulsarDataSource)
    spark.readStream.format("pulsar").options(serviceUrl=..., adminUrl=..., topic=..., ...)
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bronze.envelope import ENVELOPE_DDL
from bronze.errors import DataLossError
from bronze.offsets import START, Offset, OffsetJson, Position, from_json, to_json
from bronze.options import PulsarOptions

if TYPE_CHECKING:
    from bronze.admin import PulsarAdmin


class PulsarDataSource(DataSource):
    """`format("pulsar")`; see `PulsarOptions` for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pulsar"

    def schema(self) -> str:
        """The envelope: position, key, payload, times, properties, schema version."""
        return ENVELOPE_DDL

    def streamReader(self, schema: StructType) -> "PulsarStreamReader":
        """The reader of one streaming query."""
        return PulsarStreamReader(PulsarOptions.parse(dict(self.options)))


class PartitionRange(InputPartition):
    """Work of one task: the entries of `topic` behind `after`, up to and with `until`."""

    def __init__(self, topic: str, after: Position, until: Position) -> None:
        self.topic = topic
        self.after = after
        self.until = until


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches. Lives in one Python process beside the driver as long as the query runs;
    only `read` runs in workers, with nothing of this state but the options.
    """

    def __init__(self, options: PulsarOptions) -> None:
        self._options = options
        self._guarded: set[str] = set()
        self._target: Offset | None = None

    def initialOffset(self) -> OffsetJson:
        """Called once for a new checkpoint: every partition from its start."""
        return to_json({})

    def getDefaultReadLimit(self) -> ReadLimit:
        """All that is there."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run ends, so that it ends while producers go on."""
        self._target = self._last_positions()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Where the next batch ends. Called by the driver for each trigger."""
        begun = from_json(start)
        self._guard(begun)
        end = self._target if self._target is not None else self._last_positions()
        # A partition without messages has no position: it stays absent, read from its start later.
        return to_json({**begun, **{name: p for name, p in end.items() if p.entry >= 0}})

    def reportLatestOffset(self) -> OffsetJson:
        """The end of the topic, for the lag in the query's progress."""
        return to_json({name: p for name, p in self._last_positions().items() if p.entry >= 0})

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[PartitionRange]:
        """One range per topic partition that has something new."""
        begun = from_json(start)
        ranges = [PartitionRange(n, begun.get(n, START), p) for n, p in from_json(end).items()]
        return [r for r in ranges if r.until > r.after]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range. Runs in a worker; again, with the same result, on retry."""
        # Here, as only these workers need the client: those that plan would pay for the import.
        from bronze.messages import read_range

        work = cast(PartitionRange, partition)
        return read_range(self._options, work.topic, work.after, work.until)

    def commit(self, end: OffsetJson) -> None:
        """Let the broker drop what is on disk now. May be missed on a crash: then it keeps more."""
        with self._admin() as admin:
            for name, position in from_json(end).items():
                admin.move_subscription(name, self._options.subscription, position)

    def stop(self) -> None:
        """Nothing to release: clients live within single calls."""

    def _admin(self) -> "PulsarAdmin":
        # Here, as only planning needs it: every worker that reads would pay for the import.
        from bronze.admin import PulsarAdmin

        return PulsarAdmin(self._options.admin_url)

    def _last_positions(self) -> Offset:
        with self._admin() as admin:
            names = admin.partitions(self._options.topic)
            return {name: admin.last_position(name) for name in names}

    def _guard(self, begun: Offset) -> None:
        """Before a partition is read for the first time in this run: is all of it still there?"""
        with self._admin() as admin:
            for name in admin.partitions(self._options.topic):
                if name not in self._guarded:
                    self._guard_partition(admin, name, begun.get(name))
                    self._guarded.add(name)

    def _guard_partition(self, admin: "PulsarAdmin", name: str, begun: Position | None) -> None:
        subscription = self._options.subscription
        kept = admin.subscription(name, subscription)
        if begun is None:
            if kept is None:
                admin.create_subscription(name, subscription)
            return
        if kept is None:
            message = (
                f"{name}: the checkpoint stands at {begun}, but the subscription '{subscription}' "
                "that kept the unread messages is gone: the topic was deleted and made anew, or "
                "the subscription was removed or expired. Messages may be lost. To land the topic "
                "as it is now, move the bronze table and its checkpoint away, or `lakehouse reset`."
            )
            raise DataLossError(message)
        if kept > begun:
            message = (
                f"{name}: messages behind {begun} were not landed, but the broker has dropped them "
                f"up to {kept} (message TTL, or somebody moved the subscription "
                f"'{subscription}'). Switch TTL off for the namespace; to go on without them, "
                "move the bronze table and its checkpoint away, or `lakehouse reset`."
            )
            raise DataLossError(message)
