"""Reading a range of one topic partition as Arrow batches. Runs in Spark's Python workers."""

from collections.abc import Iterator
from typing import Any

import pulsar
import pyarrow as pa

from bronze.backlog import PartitionRange
from bronze.errors import BrokerError
from bronze.offsets import START, Position
from bronze.options import PulsarOptions

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 8 << 20

UTC_MILLIS = pa.timestamp("ms", tz="UTC")
UTC_MICROS = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("batch_index", pa.int32()),
        ("key", pa.string()),
        ("payload", pa.binary()),
        ("event_time", UTC_MICROS),
        ("publish_time", UTC_MICROS),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("schema_version", pa.int64()),
    ]
)


def batch_size(serialized: bytes) -> int:
    """Number of messages in the entry of a serialized MessageIdData; 1 if it is not a batch.

    The client does not expose it, so field 6 (`batch_size`, see PulsarApi.proto) is read here.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = serialized[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(serialized):
        tag = varint()
        content = varint()
        if tag >> 3 == 6:
            return max(content, 1)
        if tag & 7 == 2:
            at += content
    return 1


def split_partition(topic: str) -> tuple[str, int]:
    """`…/orders-partition-3` -> (`…/orders`, 3); a topic without partitions has -1."""
    name, mark, number = topic.rpartition("-partition-")
    return (name, int(number)) if mark and number.isdigit() else (topic, -1)


def read_range(options: PulsarOptions, work: PartitionRange) -> Iterator[pa.RecordBatch]:
    """All messages of a topic partition behind `work.after`, up to and with `work.until`.

    Raises:
        BrokerError: the broker refused or fell silent before the end. A short range is never
            returned: the task fails and Spark tries the batch again.
    """
    client = options.connection.client()
    last = work.after
    try:
        reader = client.create_reader(
            work.topic, _start(work.after), receiver_queue_size=work.receiver_queue
        )
        rows = _Rows(work.topic)
        while True:
            message = reader.read_next(timeout_millis=options.read_timeout_ms)
            message_id = message.message_id()
            # The index is -1 or 0 for a message that is not batched, as the client pleases.
            index = max(message_id.batch_index(), 0)
            last = Position(message_id.ledger_id(), message_id.entry_id(), index)
            if last > work.until:
                break
            if last > work.after:  # the client starts at the beginning of the entry
                rows.add(message, message_id)
                if rows.full():
                    yield rows.take()
            if last[:2] == work.until[:2] and (
                index == work.until.batch or index + 1 >= batch_size(message_id.serialize())
            ):
                break
        if rows.count:
            yield rows.take()
    except pulsar.PulsarException as error:
        message_text = (
            f"{work.topic}: reading what is behind {work.after} up to {work.until} stopped at "
            f"{last}: {error!r}. The batch is not short: it fails and is tried again. See that the "
            f"broker at {options.connection.service_url} is up; a slow one needs a larger "
            "readTimeoutMs."
        )
        raise BrokerError(message_text) from error
    finally:
        client.close()


def _start(after: Position) -> Any:
    """Where a reader starts: at an entry, whose messages come again."""
    if after == START:
        return pulsar.MessageId.earliest
    return pulsar.MessageId(-1, after.ledger, after.entry, -1)


class _Rows:
    """Columns of the record batch being filled."""

    def __init__(self, topic: str) -> None:
        self._topic, self._partition = split_partition(topic)
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._columns: list[list[Any]] = [[] for _ in range(len(ARROW_SCHEMA) - 2)]

    def add(self, message: Any, message_id: Any) -> None:
        payload = None if message.has_null_value() else message.data()
        event_time = message.event_timestamp()
        values = (
            message_id.ledger_id(),
            message_id.entry_id(),
            max(message_id.batch_index(), 0),
            message.partition_key() or None,
            payload,
            event_time or None,
            message.publish_timestamp(),
            list(message.properties().items()),
            _schema_version(message),
        )
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.count += 1
        self._bytes += len(payload or b"")

    def full(self) -> bool:
        return self.count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
        ledger, entry, index, key, payload, event, publish, properties, version = self._columns
        arrays = [
            pa.repeat(self._topic, self.count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), self.count),
            pa.array(ledger, pa.int64()),
            pa.array(entry, pa.int64()),
            pa.array(index, pa.int32()),
            pa.array(key, pa.string()),
            pa.array(payload, pa.binary()),
            pa.array(event, UTC_MILLIS).cast(UTC_MICROS),
            pa.array(publish, UTC_MILLIS).cast(UTC_MICROS),
            pa.array(properties, ARROW_SCHEMA.field("properties").type),
            pa.array(version, pa.int64()),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _schema_version(message: Any) -> int | None:
    version: int = message._message.int_schema_version()  # noqa: SLF001 - the client does not wrap it
    return None if version < 0 else version
