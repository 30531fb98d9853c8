"""Reading a range of one topic partition as Arrow batches. Runs in Spark's Python workers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pulsar
import pyarrow as pa

from bronze.backlog import PartitionRange
from bronze.eras import Span
from bronze.errors import BrokerError
from bronze.offsets import START, WHOLE, Position
from bronze.options import PulsarOptions

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 8 << 20
NO_MORE_MS = 1_000
NONE: Sequence[tuple[str, str]] = ()

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
        ("order_time", UTC_MICROS),
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


def read_ranges(
    options: PulsarOptions, ranges: Sequence[PartitionRange]
) -> Iterator[pa.RecordBatch]:
    """All messages of some ranges, one after the other; errors as of `read_range`."""
    client = options.connection.client()
    try:
        for work in ranges:
            yield from read_range(client, options, work)
    finally:
        client.close()


def read_range(
    client: pulsar.Client, options: PulsarOptions, work: PartitionRange
) -> Iterator[pa.RecordBatch]:
    """All messages of a topic partition behind `work.after`, up to and with `work.until`.

    Raises:
        BrokerError: the broker refused or fell silent before the end. A short range is never
            returned: the task fails and Spark tries the batch again.
    """
    last = work.after
    try:
        reader = client.create_reader(
            work.topic,
            _start(work.after),
            receiver_queue_size=work.receiver_queue,
            is_read_compacted=options.read_compacted,
        )
        entries = _Entries(reader, options.read_timeout_ms)
        if options.read_compacted:
            entries = _CompactedEntries(reader, options.read_timeout_ms, work)
        rows = _Rows(work.topic, work.order_times)
        while not entries.have_ended():
            last, index, messages = entries.next()
            if Position(last.ledger, last.entry, 0) > work.until:
                break
            # The client starts at the beginning of the entry, and a bound may lie within one.
            first = work.after.batch + 1 if last[:2] == work.after[:2] else 0
            end = work.until.batch + 1 if last[:2] == work.until[:2] else WHOLE
            first = max(first, index)
            rows.add(last, messages[first - index : max(end - index, 0)], first)
            if rows.full():
                yield rows.take()
            if last >= work.until:
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


def _start(after: Position) -> Any:
    """Where a reader starts: at an entry, whose messages come again."""
    if after == START:
        return pulsar.MessageId.earliest
    return pulsar.MessageId(-1, after.ledger, after.entry, -1)


class _Entries:
    """Reads entry by entry: what all messages of a batch have in common is asked once.

    The client's own wrappers are left out: to make them for each message costs half of the time.
    """

    def __init__(self, reader: Any, timeout_ms: int) -> None:
        self._receive = reader._reader.read_next  # noqa: SLF001
        self._timeout_ms = timeout_ms

    def have_ended(self) -> bool:
        """Whether there is no other, though the end of the range was not seen."""
        return False

    def next(self) -> tuple[Position, int, list[Any]]:
        """The position of the next entry, the index of its first message, and all of them."""
        return self._entry_of(self._receive(self._timeout_ms))

    def _entry_of(self, message: Any) -> tuple[Position, int, list[Any]]:
        receive, timeout = self._receive, self._timeout_ms
        begun = message.message_id()
        size = batch_size(begun.serialize())
        messages = [message, *[receive(timeout) for _ in range(size - 1)]]
        ended = messages[-1].message_id()
        # The index is -1 or 0 for a message that is not batched, as the client pleases.
        first, last = max(begun.batch_index(), 0), max(ended.batch_index(), 0)
        place = ended.ledger_id(), ended.entry_id()
        if (begun.ledger_id(), begun.entry_id(), first, last) != (*place, 0, size - 1):
            message_text = (
                f"The client gave {size} messages as those of one entry, from {begun} to {ended}, "
                "which are not: this is a fault of the client or of a damaged entry. Nothing was "
                "landed; the batch is tried again."
            )
            raise BrokerError(message_text)
        return Position(*place), 0, messages


class _CompactedEntries(_Entries):
    """Reads what is compacted message by message: of a batch there may be but some left.

    The last entry of a range may have been compacted away. That there is no more then takes two
    witnesses: the broker says so, and a read brings nothing. (The client alone cannot be trusted:
    `has_message_available` of a fresh reader may be False while there are messages.)
    """

    def __init__(self, reader: Any, timeout_ms: int, work: PartitionRange) -> None:
        super().__init__(reader, timeout_ms)
        self._reader = reader
        self._horizon = work.compacted
        self._all_compacted = work.until <= work.compacted
        self._next: Any = None

    def have_ended(self) -> bool:
        if not self._all_compacted or self._reader.has_message_available():
            return False
        try:
            self._next = self._receive(NO_MORE_MS)
        except pulsar.Timeout:
            return True
        return False

    def next(self) -> tuple[Position, int, list[Any]]:
        message, self._next = self._next or self._receive(self._timeout_ms), None
        place = message.message_id()
        index = max(place.batch_index(), 0)
        position = Position(place.ledger_id(), place.entry_id(), index)
        if position > self._horizon:
            return self._entry_of(message)
        # Compaction blanks those messages of a batch that go; without a key none is kept.
        return position, index, [message] if message.partition_key() else []


class _Rows:
    """Columns of the record batch being filled; what is common to an entry is kept once."""

    def __init__(self, topic: str, order_times: Span | None) -> None:
        self._topic, self._partition = split_partition(topic)
        self._order_times = order_times
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._entries: list[tuple[int, int, int, int]] = []  # ledger, entry, publish, version
        self._sizes: list[int] = []
        self._indexes: list[range] = []
        self._keys: list[str | None] = []
        self._payloads: list[bytes | None] = []
        self._event_times: list[int] = []
        self._properties: list[Sequence[tuple[str, str]]] = []

    def add(self, entry: Position, messages: Sequence[Any], first: int) -> None:
        """Add messages of an entry, the first of which has the index `first` in it."""
        if not messages:
            return
        # Of the batch, not of its messages.
        times = messages[0].publish_timestamp(), messages[0].int_schema_version()
        self._entries.append((entry.ledger, entry.entry, *times))
        self._sizes.append(len(messages))
        self._indexes.append(range(first, first + len(messages)))
        payloads = [message.data() for message in messages]
        if not all(payloads):
            pairs = zip(payloads, messages, strict=True)
            payloads = [None if not p and m.has_null_value() else p for p, m in pairs]
        self._payloads += payloads
        self._keys += [message.partition_key() or None for message in messages]
        self._event_times += [message.event_timestamp() for message in messages]
        properties = [message.properties() for message in messages]
        self._properties += [list(each.items()) if each else NONE for each in properties]
        self.count += len(messages)
        self._bytes += sum(map(len, filter(None, payloads)))

    def full(self) -> bool:
        return self.count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
        ledger, entry, publish, version = np.repeat(
            np.array(self._entries, np.int64), self._sizes, axis=0
        ).T
        event = np.array(self._event_times, np.int64)
        arrays = [
            pa.repeat(self._topic, self.count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), self.count),
            pa.array(ledger),
            pa.array(entry),
            pa.array(np.concatenate(self._indexes).astype(np.int32)),
            pa.array(self._keys, pa.string()),
            pa.array(self._payloads, pa.binary()),
            pa.array(event * 1000, UTC_MICROS, mask=event == 0),
            pa.array(publish * 1000, UTC_MICROS),
            self._ordered(publish * 1000),
            pa.array(self._properties, ARROW_SCHEMA.field("properties").type),
            pa.array(version, mask=version < 0),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)

    def _ordered(self, published: np.ndarray) -> pa.Array:
        if self._order_times is None:
            return pa.nulls(self.count, UTC_MICROS)
        return pa.array(np.clip(published, *self._order_times), UTC_MICROS)
