"""Writes rows to a Pulsar topic: `df.writeStream.format("pulsar")` and `df.write.format("pulsar")`.

Guarantee of a stream: exactly once if message deduplication is on in the namespace. A replayed
batch sends the same sequence ids under the same producer names, and the broker drops the messages
that it has already. In a replay, each task of the query must therefore get the same rows in the
same order (no shuffle by `rand()`, the same number of shuffle partitions). A batch write with a
`batchId`, for example in `foreachBatch`, has the same guarantee. Other batch writes, and all writes
without deduplication, deliver at least once.
Parallelism: one producer per task. Messages are not batched, because the broker drops or keeps a
batch as a whole, and a replay may group the messages differently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pulsar_spark.broker.connection import OPTION_OF, Connection
from pulsar_spark.errors import BrokerError, SettingsError
from pulsar_spark.options import by_name

# Columns that a row may have, and their allowed Spark types.
COLUMNS = {
    "payload": ("binary", "string"),
    "key": ("string",),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
    "partition": ("int", "bigint"),
}
KNOWN = (*OPTION_OF.values(), "topic", "producerName", "batchId", "checkpointLocation")
BATCH_ID = "streaming.sql.batchId"
ROWS_BITS = 31  # sequence id = batch id and, in the lower bits, the row within the task
MAX_PENDING = 5_000


@dataclass(frozen=True)
class SinkOptions:
    """Where to write; see `Connection` for the options about the broker.

    topic: full name, `persistent://tenant/namespace/topic`. Required.
    producerName: name by which the broker recognises a replayed batch. Required for a stream. It
        must stay the same after a restart, and no other query may use it.
    batchId: number of the batch, for a batch write with a producerName. It must increase from batch
        to batch. Writing a number again adds nothing.

    Rows have the column `payload` (binary or string; NULL is sent as an empty message, which
    deletes the key in a changelog) and optionally `key`, `event_time`, `properties` and
    `partition`. Without `partition`, the key chooses the partition, and rows without a key are
    spread over all partitions.
    """

    connection: Connection
    topic: str
    producer_name: str | None
    batch_id: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType) -> "SinkOptions":
        """Check the options and the columns of a writer.

        Raises:
            SettingsError: an option or column is unknown, missing or invalid.
        """
        given = by_name(options, KNOWN)
        if not given.get("topic", "").startswith("persistent://"):
            message = "Option 'topic': use the full name, persistent://tenant/namespace/topic."
            raise SettingsError(message)
        _check_columns(schema)
        batch = given.get("batchId")
        if batch is not None and not (batch.isdigit() and given.get("producerName")):
            message = f"Option batchId: '{batch}' must be a number, and producerName must be set."
            raise SettingsError(message)
        return cls(
            Connection.parse(given),
            given["topic"],
            given.get("producerName"),
            int(batch) if batch else None,
        )


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query: exactly once if deduplication is on."""

    def __init__(self, options: SinkOptions) -> None:
        if not options.producer_name:
            message = (
                "Option 'producerName' of format(\"pulsar\") is missing: the broker needs it to "
                "recognise a replayed batch. Use a different name for each query, and keep it "
                "unchanged over restarts."
            )
            raise SettingsError(message)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task. Runs in a worker."""
        context = TaskContext.get()
        batch = context.getLocalProperty(BATCH_ID) if context else None
        if batch is None:
            message = "The sink cannot find the number of its batch; is this a streaming query?"
            raise BrokerError(message)
        _send(self._options, iterator, int(batch))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the broker has confirmed all messages already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: sent messages cannot be taken back, and the batch will be replayed."""


class PulsarBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query: at least once, or exactly once with a `batchId`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task. Runs in a worker."""
        _send(self._options, iterator, self._options.batch_id)
        return WriterCommitMessage()


def _check_columns(schema: StructType) -> None:
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in COLUMNS.get(field.name, ()):
            wanted = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in COLUMNS.items())
            message = (
                f"Column '{field.name} {kind}' cannot be written to Pulsar; the allowed columns "
                f"are {wanted}."
            )
            raise SettingsError(message)
    if "payload" not in schema.names:
        message = f"The column 'payload' is missing; the rows have {', '.join(schema.names)}."
        raise SettingsError(message)


def _send(options: SinkOptions, batches: Iterator[pa.RecordBatch], batch_id: int | None) -> None:
    """Send the rows of one task. With a batch id, names and sequence ids are as in a replay."""
    import pulsar

    client = options.connection.client()
    failures: list[Any] = []

    def confirmed(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    try:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        name = None if batch_id is None else f"{options.producer_name}-{task}"
        sequence = None if batch_id is None else batch_id << ROWS_BITS
        producers = _Producers(client, options.topic, name)
        for batch in batches:
            for row in batch.to_pylist():
                partition = row.get("partition")
                if partition is None and row.get("key") is None and sequence is not None:
                    partition = producers.spread(sequence)
                producers.of(partition).send_async(
                    _bytes(row["payload"]), confirmed, sequence_id=sequence, **_metadata(row)
                )
                sequence = None if sequence is None else sequence + 1
        producers.flush()
    except pulsar.PulsarException as error:
        failures.append(error)
    finally:
        client.close()
    if failures:
        message = (
            f"{options.topic}: the broker did not accept {len(failures)} messages; the first "
            f"error is {failures[0]!r}. The task fails and is tried again."
        )
        raise BrokerError(message)


class _Producers:
    """A producer for messages whose key chooses the partition, and one per explicit partition.

    Both may write to the same partition, so they need different names. A task's name ends with its
    number, so it never equals the name of another query's producer for a partition.
    """

    def __init__(self, client: Any, topic: str, name: str | None) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._made: dict[int | None, Any] = {}

    def of(self, partition: int | None) -> Any:
        if partition not in self._made:
            topic, name = self._topic, self._name
            if partition is not None:
                topic, name = f"{topic}-partition-{partition}", name and f"{name}.{partition}"
            self._made[partition] = self._client.create_producer(
                topic,
                producer_name=name,
                block_if_queue_full=True,
                max_pending_messages=MAX_PENDING,
            )
        return self._made[partition]

    def spread(self, number: int) -> int | None:
        """The partition of a message without a key; None if the topic has only one partition.

        The client would begin with a random partition. In a replay, messages would reach other
        partitions, where the broker might drop them as duplicates or accept them twice.
        """
        count = self._partitions
        return number % count if count > 1 else None

    @cached_property
    def _partitions(self) -> int:
        return len(self._client.get_topic_partitions(self._topic))

    def flush(self) -> None:
        for producer in self._made.values():
            producer.flush()


def _bytes(payload: bytes | str | None) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload or b""


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if row.get("key") is not None:
        found["partition_key"] = row["key"]
    if row.get("event_time") is not None:
        found["event_timestamp"] = round(row["event_time"].timestamp() * 1000)
    if row.get("properties"):
        found["properties"] = dict(row["properties"])
    return found
