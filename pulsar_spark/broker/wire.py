"""Reads the stored entries of a topic partition over Pulsar's binary protocol.

The Python client hides three things that the source must know: the chunks of a message that the
client could not assemble, the bytes of metadata that is not UTF-8, and the kind of an entry before
it is read. The admin API does not help: it never answers for a compressed chunk, and fails for
metadata of more than 8 KB. These rare entries are therefore read here, through a non-durable
subscription, which the broker deletes when the connection ends. Ordinary messages are never read
this way.

Field names and numbers are those of Pulsar's PulsarApi.proto.
"""

import contextlib
import itertools
import socket
import ssl
import struct
import uuid
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from pulsar_spark.broker.connection import Connection
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import Position

Fields = dict[int, list[int | bytes]]

CONNECT, CONNECTED, SUBSCRIBE, MESSAGE, FLOW, SUCCESS, ERROR = 2, 3, 4, 9, 11, 13, 14
PING, PONG, LOOKUP, LOOKUP_RESPONSE = 18, 19, 23, 24
SILENCE = 0  # used in place of a command if none arrived in time
PROTOCOL_VERSION = 15
CHECKSUM, BROKER_METADATA = b"\x0e\x01", b"\x0e\x02"
PERMITS = 20  # entries that the broker may send ahead, each of up to 5 MB
HOPS = 10  # redirects of a lookup from broker to broker
CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
ZLIB = 2
CONNECT_SECONDS = 10.0


class Metadata(NamedTuple):
    """Metadata of a message, byte for byte. Times are in milliseconds, unsigned as on the wire."""

    key: bytes | None
    properties: list[tuple[bytes, bytes]]
    event_time: int
    is_null: bool


class Entry(NamedTuple):
    """A stored entry: a message, a batch of messages, or a chunk of a message.

    fields: the entry's metadata, by field number.
    payload: the payload as stored, possibly compressed.
    """

    position: Position
    fields: Fields
    payload: bytes

    @property
    def messages(self) -> int:
        """The number of messages in the batch; 1 if the entry is not a batch."""
        return self.number(11, 1)

    @property
    def uuid(self) -> bytes:
        """The id shared by all chunks of a message; empty if the entry is not a chunk."""
        return _bytes(self.fields, 26)

    @property
    def chunk(self) -> int | None:
        """The number of the chunk, counted from 0; None if the entry is not a chunk."""
        return self.number(29) if 29 in self.fields and self.number(27) > 1 else None

    @property
    def chunks(self) -> int | None:
        """The number of chunks of the message; None if the entry is not a chunk."""
        return self.number(27) if self.chunk is not None else None

    @property
    def publish_time(self) -> int:
        """When the producer published the entry, in epoch milliseconds."""
        return self.number(3)

    def number(self, field: int, default: int = 0) -> int:
        """The value of a numeric metadata field, or `default` if it is absent."""
        value = self.fields.get(field, [default])[-1]
        return value if isinstance(value, int) else default

    def metadata(self) -> Metadata:
        """The metadata of the entry's only message."""
        found = self.fields
        key = _bytes(found, 6) if 6 in found else None
        return Metadata(key, _pairs(found.get(4, [])), self.number(12), bool(self.number(25)))

    def batch(self) -> list[Metadata]:
        """The metadata of each message of the entry, in order."""
        if 11 not in self.fields:
            return [self.metadata()]
        payload, at, every = self.content(self.payload), 0, []
        for _ in range(self.messages):
            (size,) = struct.unpack_from(">I", payload, at)
            found = decode(payload[at + 4 : at + 4 + size])
            at += 4 + size + _number(found, 3)
            key = _bytes(found, 2) if 2 in found else None
            null = bool(_number(found, 9))
            every.append(Metadata(key, _pairs(found.get(1, [])), _number(found, 5), null))
        return every

    def content(self, stored: bytes) -> bytes:
        """Decompress a stored payload with the codec named in the metadata.

        Raises:
            BrokerError: the payload is encrypted, or its codec is unknown.
        """
        kind, size = self.number(8), self.number(9)
        if 13 in self.fields or kind > max(CODECS):
            message = f"Entry {self.position} is encrypted, or its codec is unknown ({kind})"
            raise BrokerError(message)
        if kind == ZLIB:
            import zlib

            return zlib.decompress(stored)
        if kind in CODECS and stored:
            found: bytes = pa.Codec(CODECS[kind]).decompress(stored, size, asbytes=True)
            return found
        return stored


class EntryReader:
    """Reads the visible entries of a topic partition, beginning at a position. Close it after use.

    Transaction markers, aborted messages and everything held back by an open transaction are not
    visible. Every method raises OSError if the connection breaks or the broker refuses a request.
    """

    def __init__(
        self, connection: Connection, partition: str, first: Position, *, compacted: bool = False
    ) -> None:
        """Subscribe from the entry `first` on, with `compacted` to the compacted copy if any."""
        self._connection = connection
        self._requests = itertools.count(1)
        self._socket: socket.socket | None = None
        try:
            self._look_up(partition)
            start = _encode((1, first.ledger), (2, first.entry))
            name = f"reader-{uuid.uuid4().hex[:10]}"
            request = next(self._requests)
            subscribed = ((1, partition), (2, name), (3, 0), (4, 1), (5, request))
            self._send(SUBSCRIBE, _encode(*subscribed, (8, 0), (9, start)))  # not durable
            self._await(SUCCESS)
            self._permit(PERMITS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "EntryReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which also ends the subscription."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def next(self, timeout_seconds: float) -> Entry | None:
        """Return the next visible entry; None if none arrives in time."""
        self._open.settimeout(timeout_seconds)
        kind, command, rest = self._receive()
        if kind == SILENCE:
            return None
        if kind != MESSAGE:
            raise _refusal(kind, command)
        place = decode(_bytes(command, 2))
        entry = _entry(Position(_number(place, 1), _number(place, 2)), rest)
        self._permit(entry.messages)
        return entry

    def _look_up(self, partition: str) -> None:
        """Connect to the broker that owns the partition."""
        service = self._connection.service_url
        self._connect(service)
        authoritative, at = 0, service
        for _ in range(HOPS):
            request = next(self._requests)
            self._send(LOOKUP, _encode((1, partition), (2, request), (3, authoritative)))
            answer = self._await(LOOKUP_RESPONSE)
            outcome = _number(answer, 3, 2)
            if outcome not in (0, 1):
                raise _refusal(LOOKUP_RESPONSE, answer)
            secure = service.startswith("pulsar+ssl")
            url = _bytes(answer, 2 if secure else 1).decode() or at
            if _number(answer, 8):  # the broker is behind a proxy
                self._connect(service, urlsplit(url).netloc)
            elif urlsplit(url).netloc != urlsplit(at).netloc:
                self._connect(url)
            at, authoritative = url, _number(answer, 5)
            if outcome == 1:
                return
        message = f"{partition}: the brokers redirected a lookup more than {HOPS} times"
        raise ConnectionError(message)

    def _connect(self, url: str, behind: str = "") -> None:
        """Connect to the first host of an address that answers, and authenticate."""
        self.close()
        parts = urlsplit(url)
        errors = []
        for address in parts.netloc.split(","):
            host, _, port = address.rpartition(":")
            try:
                found = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
            except OSError as error:
                errors.append(error)
                continue
            self._socket = found
            break
        else:
            raise errors[0]
        if parts.scheme == "pulsar+ssl":
            context: ssl.SSLContext = self._connection.tls(url)
            self._socket = context.wrap_socket(found, server_hostname=host.strip("[]"))
        method, secret = self._connection.credentials()
        fields: list[tuple[int, int | str | bytes]] = [(1, "lakehouse"), (4, PROTOCOL_VERSION)]
        fields += [(5, method), (3, secret)] if method else []
        fields += [(6, behind)] if behind else []
        self._send(CONNECT, _encode(*sorted(fields, key=lambda field: field[0])))
        self._await(CONNECTED)

    @property
    def _open(self) -> socket.socket:
        if self._socket is None:
            message = "the connection is closed"
            raise ConnectionError(message)
        return self._socket

    def _permit(self, entries: int) -> None:
        self._send(FLOW, _encode((1, 1), (2, entries)))

    def _send(self, kind: int, command: bytes) -> None:
        content = _encode((1, kind), (kind, command))
        self._open.sendall(struct.pack(">II", len(content) + 4, len(content)) + content)

    def _await(self, wanted: int) -> Fields:
        self._open.settimeout(CONNECT_SECONDS)
        kind, command, _ = self._receive()
        if kind != wanted:
            raise _refusal(kind, command)
        return command

    def _receive(self) -> tuple[int, Fields, bytes]:
        """Return the next command other than a ping, its fields, and the rest of its frame."""
        while True:
            try:
                begun = self._open.recv(1)
            except TimeoutError:
                return SILENCE, {}, b""
            self._open.settimeout(CONNECT_SECONDS)
            total, size = struct.unpack(">II", begun + self._exactly(7 if begun else 8))
            frame = self._exactly(total - 4)
            found = decode(frame[:size])
            kind = _number(found, 1)
            if kind != PING:
                return kind, decode(_bytes(found, kind)), frame[size:]
            self._send(PONG, b"")

    def _exactly(self, size: int) -> bytes:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            read = self._open.recv_into(view[at:])
            if not read:
                message = "the broker has closed the connection"
                raise ConnectionError(message)
            at += read
        return bytes(found)


@contextlib.contextmanager
def reading(
    connection: Connection, partition: str, first: Position, *, compacted: bool = False
) -> Iterator[EntryReader]:
    """An `EntryReader` that is closed at the end.

    Raises:
        BrokerError: the connection breaks or the broker refuses; names the partition and position.
    """
    try:
        with EntryReader(connection, partition, first, compacted=compacted) as reader:
            yield reader
    except OSError as error:
        message = (
            f"{partition}: cannot read entries from {first} on: {error}. Check that the broker at "
            f"{connection.service_url} is running; the batch is tried again."
        )
        raise BrokerError(message) from error


def decode(message: bytes) -> Fields:
    """Parse a protobuf message into its fields, by number, each with its values in order."""
    found: Fields = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        tag = varint()
        content: int | bytes
        if tag & 7 == 0:
            content = varint()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            content = message[at : at + size]
            at += size
        found.setdefault(tag >> 3, []).append(content)
    return found


def _encode(*fields: tuple[int, int | str | bytes]) -> bytes:
    found = b""
    for number, value in fields:
        if isinstance(value, int):
            found += _varint(number << 3) + _varint(value % 2**64)
        else:
            content = value.encode() if isinstance(value, str) else value
            found += _varint(number << 3 | 2) + _varint(len(content)) + content
    return found


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _entry(position: Position, stored: bytes) -> Entry:
    at = 0
    if stored[:2] == BROKER_METADATA:
        at = 6 + struct.unpack_from(">I", stored, 2)[0]
    if stored[at : at + 2] == CHECKSUM:
        at += 6
    (size,) = struct.unpack_from(">I", stored, at)
    at += 4
    return Entry(position, decode(stored[at : at + size]), stored[at + size :])


def _pairs(stored: list[int | bytes]) -> list[tuple[bytes, bytes]]:
    each = [decode(pair) for pair in stored if isinstance(pair, bytes)]
    return [(_bytes(pair, 1), _bytes(pair, 2)) for pair in each]


def _number(fields: Fields, field: int, default: int = 0) -> int:
    value = fields.get(field, [default])[-1]
    return value if isinstance(value, int) else default


def _bytes(fields: Fields, field: int) -> bytes:
    value = fields.get(field, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def _refusal(kind: int, command: Fields) -> ConnectionError:
    """The broker's answer as an error. An ERROR has its text in field 3, a lookup in field 7."""
    text = _bytes(command, 7 if kind == LOOKUP_RESPONSE else 3).decode(errors="replace")
    return ConnectionError(text or f"the broker answered with command {kind}")
