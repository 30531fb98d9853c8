"""Reads a range of a topic partition as Arrow batches. Runs in Spark's Python workers."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pulsar
import pyarrow as pa

from pulsar_spark.broker.wire import Metadata, reading
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import START, WHOLE, Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.ledgers import PartitionRange
from pulsar_spark.read.gaps import Gaps

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 8 << 20
NO_MORE_MS = 1_000
QUIET_MS = 1_000
NONE: Sequence[tuple[str, str]] = ()

UTC_MICROS = pa.timestamp("us", tz="UTC")
RAW_PROPERTIES = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
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
        ("raw_key", pa.binary()),
        ("raw_properties", RAW_PROPERTIES),
        ("undecoded", pa.string()),
    ]
)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
TOO_LATE_MS = 2**63 - 1  # replaces unsigned numbers that exceed the signed range


def batch_size(serialized: bytes) -> int:
    """The number of messages in the entry of a serialized MessageIdData; 1 if it is not a batch.

    The client does not expose this number, so field 6 (`batch_size`, see PulsarApi.proto) is read
    here.
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
    """Split `…/orders-partition-3` into (`…/orders`, 3). A topic without partitions has -1."""
    name, mark, number = topic.rpartition("-partition-")
    return (name, int(number)) if mark and number.isdigit() else (topic, -1)


def read_ranges(
    options: PulsarOptions, ranges: Sequence[PartitionRange]
) -> Iterator[pa.RecordBatch]:
    """Yield all messages of several ranges, one range after the other.

    Raises the errors of `read_range`.
    """
    client = options.connection.client()
    try:
        for work in ranges:
            yield from read_range(client, options, work)
    finally:
        client.close()


def read_range(
    client: pulsar.Client, options: PulsarOptions, work: PartitionRange
) -> Iterator[pa.RecordBatch]:
    """Yield all messages of a topic partition after `work.after`, up to and including `work.until`.

    Raises:
        BrokerError: the broker refused or stopped answering before the end. A range is never cut
            short silently: the task fails, and Spark runs the batch again.
    """
    last = work.after
    past = Position(work.until.ledger, work.until.entry + 1, 0)
    gaps = Gaps(options, work)
    try:
        reader = client.create_reader(
            work.topic,
            _start(work.after),
            receiver_queue_size=work.receiver_queue,
            is_read_compacted=options.read_compacted,
        )
        entries = _Entries(reader, options, lambda: gaps.only_chunks_follow(last))
        if options.read_compacted:
            entries = _CompactedEntries(reader, options, work)
        rows = _Rows(options, work)
        while last < work.until and (found := entries.next()):
            before = last
            last, index, messages = found
            if last.entry != before.entry + 1 or last.ledger != before.ledger:
                gaps.note(before, min(last, past))
            if last >= past:
                break
            # The client starts at the beginning of an entry, but a bound may lie within one.
            first = work.after.batch + 1 if last[:2] == work.after[:2] else 0
            end = work.until.batch + 1 if last[:2] == work.until[:2] else WHOLE
            first = max(first, index)
            rows.add(last, messages[first - index : max(end - index, 0)], first)
            if rows.full():
                yield rows.take()
        gaps.note(last, past)
        for place, message in gaps.messages():
            rows.add(place, [message], 0)
            if rows.full():
                yield rows.take()
        if rows.count:
            yield rows.take()
    except pulsar.PulsarException as error:
        message_text = (
            f"{work.topic}: reading from {work.after} to {work.until} stopped at {last}: "
            f"{error!r}. No message is skipped: the batch fails and is tried again. Check that the "
            f"broker at {options.connection.service_url} is running; a slow one needs a larger "
            "readTimeoutMs."
        )
        raise BrokerError(message_text) from error


def stored_metadata(
    options: PulsarOptions, work: PartitionRange, place: Position
) -> list[Metadata]:
    """Read the metadata of all messages of an entry, byte for byte, as the broker stores it.

    Called for entries with metadata that is not UTF-8, which the client cannot deliver.

    Raises:
        BrokerError: the broker does not send the entry.
    """
    compacted = options.read_compacted
    with reading(options.connection, work.topic, place, compacted=compacted) as reader:
        entry = reader.next(options.read_timeout_ms / 1000)
        if entry is None or entry.position[:2] != place[:2]:
            message = (
                f"{work.topic}: the broker did not send entry {place} a second time, which is "
                "needed because its metadata is not UTF-8. Nothing of the batch was landed; it is "
                "tried again."
            )
            raise BrokerError(message)
        return entry.batch()


def _start(after: Position) -> Any:
    """Where a reader starts: at the entry of `after`, all of whose messages are delivered again."""
    if after == START:
        return pulsar.MessageId.earliest
    return pulsar.MessageId(-1, after.ledger, after.entry, -1)


class _Entries:
    """Reads entry by entry, so that attributes shared by a batch are fetched once.

    Bypasses the client's own wrappers, because creating them for each message takes half of the
    time.
    """

    def __init__(
        self, reader: Any, options: PulsarOptions, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_over` is called when no message has arrived for a while; true ends the range."""
        self._receive = reader._reader.read_next  # noqa: SLF001
        self._timeout_ms = options.read_timeout_ms
        self._quiet_ms = min(QUIET_MS, self._timeout_ms)
        self._is_over = is_over

    def next(self) -> tuple[Position, int, list[Any]] | None:
        """Read the next entry.

        Returns:
            The position of the entry, the index of its first message, and its messages. None if
            no message is left, even if the end of the range was not reached.
        """
        try:
            message = self._receive(self._quiet_ms)
        except pulsar.Timeout:
            message = self._patiently()
        return self._entry_of(message) if message else None

    def _patiently(self) -> Any:
        for _ in range(2 * self._quiet_ms, self._timeout_ms, self._quiet_ms):
            if self._is_over():
                return None
            with contextlib.suppress(pulsar.Timeout):
                return self._receive(self._quiet_ms)
        return None if self._is_over() else self._receive(self._quiet_ms)

    def _entry_of(self, message: Any) -> tuple[Position, int, list[Any]]:
        receive, timeout = self._receive, self._timeout_ms
        begun = message.message_id()
        size = batch_size(begun.serialize())
        messages = [message, *[receive(timeout) for _ in range(size - 1)]]
        ended = messages[-1].message_id()
        # The client reports -1 or 0 as the index of a message that is not batched.
        first, last = max(begun.batch_index(), 0), max(ended.batch_index(), 0)
        place = ended.ledger_id(), ended.entry_id()
        if (begun.ledger_id(), begun.entry_id(), first, last) != (*place, 0, size - 1):
            message_text = (
                f"The client delivered {size} messages as one entry, from {begun} to {ended}, but "
                "they belong to different entries: the client is faulty or the entry is damaged. "
                "Nothing was landed; the batch is tried again."
            )
            raise BrokerError(message_text)
        return Position(*place), 0, messages


class _CompactedEntries(_Entries):
    """Reads the compacted copy message by message, because a batch may have lost some messages.

    The last entry of a range may have been compacted away. The range is then over only if both the
    broker says so and a read returns nothing. `has_message_available` alone is not reliable: on a
    new reader it may return False although there are messages.
    """

    def __init__(self, reader: Any, options: PulsarOptions, work: PartitionRange) -> None:
        super().__init__(reader, options)
        self._reader = reader
        self._horizon = work.compacted
        self._all_compacted = work.until <= work.compacted

    def next(self) -> tuple[Position, int, list[Any]] | None:
        """Read the next message of the compacted copy, or the next entry after the copy."""
        timeout = self._timeout_ms
        if self._all_compacted and not self._reader.has_message_available():
            timeout = NO_MORE_MS
        try:
            message = self._receive(timeout)
        except pulsar.Timeout:
            if timeout == NO_MORE_MS:
                return None
            raise
        place = message.message_id()
        index = max(place.batch_index(), 0)
        position = Position(place.ledger_id(), place.entry_id(), index)
        if position > self._horizon:
            return self._entry_of(message)
        # Compaction blanks the messages that it removes from a batch, and keeps none without a key.
        return position, index, [message] if message.partition_key() else []


class _Rows:
    """The columns of the record batch being filled. Values shared by an entry are stored once."""

    def __init__(self, options: PulsarOptions, work: PartitionRange) -> None:
        self._topic, self._partition = split_partition(work.topic)
        self._order_times = work.order_times
        self._options = options
        self._work = work
        self._entry: tuple[tuple[int, int], list[Metadata]] | None = None
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
        self._raw_keys: dict[int, bytes] = {}  # by row, like the next two
        self._raw_properties: dict[int, list[tuple[bytes, bytes]]] = {}
        self._undecoded: dict[int, list[str]] = {}

    def add(self, entry: Position, messages: Sequence[Any], first: int) -> None:
        """Add consecutive messages of an entry, beginning with the one at index `first`."""
        if not messages:
            return
        # These belong to the batch, not to each message.
        times = messages[0].publish_timestamp(), messages[0].int_schema_version()
        self._entries.append((entry.ledger, entry.entry, *times))
        self._sizes.append(len(messages))
        self._indexes.append(range(first, first + len(messages)))
        payloads = [message.data() for message in messages]
        if not all(payloads):
            pairs = zip(payloads, messages, strict=True)
            payloads = [None if not p and m.has_null_value() else p for p, m in pairs]
        self._payloads += payloads
        try:
            keys = [message.partition_key() or None for message in messages]
            properties = [message.properties() for message in messages]
        except UnicodeDecodeError:
            keys = [self._key(n, message) for n, message in enumerate(messages)]
            properties = self._properties_of(entry, messages, first)
        self._keys += keys
        self._event_times += [message.event_timestamp() for message in messages]
        self._properties += [list(each.items()) if each else NONE for each in properties]
        self.count += len(messages)
        self._bytes += sum(map(len, filter(None, payloads)))

    def _key(self, number: int, message: Any) -> str | None:
        """The key of the message `number` rows on; a key that is not UTF-8 is kept as bytes."""
        try:
            return message.partition_key() or None
        except UnicodeDecodeError as error:
            self._raw_keys[self.count + number] = error.object
            self._undecoded.setdefault(self.count + number, []).append("key")
            return None

    def _properties_of(
        self, entry: Position, messages: Sequence[Any], first: int
    ) -> list[dict[str, str]]:
        """The properties of an entry's messages, without those that are not UTF-8.

        If one property is not UTF-8, the client delivers none of the message's properties, so
        their bytes are read from the broker.
        """
        found: list[dict[str, str]] = []
        for number, message in enumerate(messages):
            try:
                found.append(message.properties())
            except UnicodeDecodeError:
                raw = self._stored(entry)[first + number].properties
                self._raw_properties[self.count + number] = raw
                self._undecoded.setdefault(self.count + number, []).append("properties")
                found.append(dict(_decoded(raw)))
        return found

    def _stored(self, place: Position) -> list[Metadata]:
        if self._entry is None or self._entry[0] != place[:2]:
            self._entry = place[:2], stored_metadata(self._options, self._work, place)
        return self._entry[1]

    def _instants(
        self, name: str, times: Sequence[int], sizes: Sequence[int] = ()
    ) -> tuple[Any, Any]:
        """Convert times from milliseconds to microseconds.

        Args:
            name: the column's name, for the notes in `undecoded`.
            times: epoch milliseconds.
            sizes: the number of rows to which each time belongs; 1 by default.

        Returns:
            The times, with 0 for those outside the years 1 to 9999, and which of them are within.
        """
        try:
            found = np.array(times, np.int64)
        except OverflowError:  # unsigned on the wire
            found = np.array([min(time, TOO_LATE_MS) for time in times], np.int64)
        fits = (found >= FIRST_MS) & (found <= LAST_MS)
        if not fits.all():
            sizes = sizes or [1] * len(times)
            ends = np.cumsum(sizes).tolist()
            for number in np.flatnonzero(~fits).tolist():
                for row in range(ends[number] - sizes[number], ends[number]):
                    self._undecoded.setdefault(row, []).append(f"{name} {times[number]}")
            found = np.where(fits, found, 0)
        return found * 1000, fits

    def full(self) -> bool:
        return self.count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
        ledgers, entries, published, versions = zip(*self._entries, strict=True)
        ledger, entry, version = np.repeat(
            np.array([ledgers, entries, versions], np.int64), self._sizes, axis=1
        )
        publish, _ = self._instants("publish_time", published, self._sizes)
        publish = np.repeat(publish, self._sizes)
        event, fits = self._instants("event_time", self._event_times)
        arrays = [
            pa.repeat(self._topic, self.count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), self.count),
            pa.array(ledger),
            pa.array(entry),
            pa.array(np.concatenate(self._indexes).astype(np.int32)),
            pa.array(self._keys, pa.string()),
            pa.array(self._payloads, pa.binary()),
            pa.array(event, UTC_MICROS, mask=(event == 0) | ~fits),
            pa.array(publish, UTC_MICROS),
            self._ordered(publish),
            pa.array(self._properties, ARROW_SCHEMA.field("properties").type),
            pa.array(version, mask=version < 0),
            self._sparse(self._raw_keys, pa.binary()),
            self._sparse(self._raw_properties, RAW_PROPERTIES),
            self._sparse({n: ", ".join(each) for n, each in self._undecoded.items()}, pa.string()),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)

    def _ordered(self, published: np.ndarray) -> pa.Array:
        if self._order_times is None:
            return pa.nulls(self.count, UTC_MICROS)
        return pa.array(np.clip(published, *self._order_times), UTC_MICROS)

    def _sparse(self, values: dict[int, Any], kind: pa.DataType) -> pa.Array:
        """A column in which few rows have a value."""
        if not values:
            return pa.nulls(self.count, kind)
        return pa.array([values.get(row) for row in range(self.count)], kind)


def _decoded(properties: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    for name, value in properties:
        with contextlib.suppress(UnicodeDecodeError):
            yield name.decode(), value.decode()
