"""Tests chunked messages: interleaved, split across batches, resent, never finished."""

import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest
from deltalake import DeltaTable
from java_client import JavaClient
from topic import LiveTopic

from lake.settings.settings import LakeSettings
from lakehouse.runtime.broker import Broker
from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.offsets import START, Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.ledgers import PartitionRange
from pulsar_spark.plan.planning import Planner
from pulsar_spark.plan.retention_guard import RetentionGuard
from pulsar_spark.read.incomplete import BOUND_MS, IncompleteTable
from pulsar_spark.read.reader import read_ranges

PRODUCERS = 40


class Chunk(NamedTuple):
    """A chunk of a message, or a plain message (`of` is 1)."""

    message: str
    number: int
    of: int

    @property
    def payload(self) -> bytes:
        return f"{self.message}:{self.number} ".encode() * 20


class ChunkedTopic:
    """A topic to which chunks are sent one by one in any order, as by several producers."""

    def __init__(self, topic: LiveTopic, java: JavaClient, folder: Path) -> None:
        self.name = f"{topic.name}-partition-0"
        self.connection = topic.settings.connection
        self.incomplete = str(folder / "incomplete")
        own = {"topic": self.name, "incompleteTable": self.incomplete}
        self.options = PulsarOptions.parse({**self.connection.options(), **own})
        self._producer = java.producer(self.name)

    def send(self, chunks: Sequence[Chunk]) -> list[Position]:
        sent = []
        for chunk in chunks:
            builder = self._producer.newMessage().key(chunk.message).value(chunk.payload)
            if chunk.of > 1:
                metadata = builder.getMetadataBuilder().setUuid(chunk.message)
                metadata.setNumChunksFromMsg(chunk.of).setChunkId(chunk.number)
                metadata.setTotalChunkMsgSize(chunk.of * len(chunk.payload))
            sent.append(builder.sendAsync())
        places = [each.get() for each in sent]
        return [Position(place.getLedgerId(), place.getEntryId()) for place in places]

    def end(self) -> Position:
        """Return the position at which the planner would end a batch now."""
        with PulsarAdmin(self.connection) as admin:
            return Planner(self.options, admin).last_positions().get(self.name, START)

    def read(self, after: Position, until: Position) -> list[tuple[Position, str, bytes]]:
        """Return position, key and payload of each message of a range, in order."""
        with PulsarAdmin(self.connection) as admin:
            ledgers = admin.log(self.name).ledgers
        work = PartitionRange(self.name, after, until, 100, ledgers=ledgers)
        found = [row for rows in read_ranges(self.options, [work]) for row in rows.to_pylist()]
        places = ((Position(r["ledger"], r["entry"]), r["key"], r["payload"]) for r in found)
        return sorted(places, key=lambda each: each[0])

    def notes(self) -> list[tuple[str, str, int]]:
        """Return the records of incomplete messages: message, state and number of chunks read."""
        rows = DeltaTable(self.incomplete).to_pyarrow_table().sort_by("recorded_at").to_pylist()
        return [(row["message"], row["state"], row["chunks_read"]) for row in rows]


@pytest.fixture
def topic(broker: Broker, settings: LakeSettings, java: JavaClient, tmp_path: Path) -> ChunkedTopic:
    return ChunkedTopic(LiveTopic(settings, "chunked", 1), java, tmp_path)


def interleaved(chosen: random.Random, messages: int) -> list[Chunk]:
    """Return interleaved chunks; each producer sends its messages one after another."""
    queues: list[list[Chunk]] = []
    for producer in range(PRODUCERS):
        queue: list[Chunk] = []
        for message in range(messages):
            of = chosen.choice((1, 2, 3, 5))
            queue += [Chunk(f"p{producer}-{message}", number, of) for number in range(of)]
        queues.append(queue)
    sent = []
    while queues := [queue for queue in queues if queue]:
        sent.append(chosen.choice(queues).pop(0))
    return sent


def whole(chunks: Sequence[Chunk], places: Sequence[Position]) -> list[tuple[Position, str, bytes]]:
    """Return the complete messages, each at the position of its last chunk."""
    parts: dict[str, bytes] = {}
    found = []
    for chunk, place in zip(chunks, places, strict=True):
        parts[chunk.message] = parts.get(chunk.message, b"") * bool(chunk.number) + chunk.payload
        if chunk.number + 1 == chunk.of:
            found.append((place, chunk.message, parts[chunk.message]))
    return found


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for got, wanted in zip(found, expected, strict=False):
        assert got == wanted, f"read {got[:2]}, but expected {wanted[:2]}"
    assert len(found) == len(expected)


def test_every_message_of_forty_producers_lands_wherever_a_range_ends(topic: ChunkedTopic) -> None:
    chosen = random.Random(3)
    chunks = interleaved(chosen, 2)
    places = topic.send(chunks)
    expected = whole(chunks, places)
    assert_same(topic.read(START, places[-1]), expected)
    cuts = [START, *sorted(chosen.sample(places[:-1], 6)), places[-1]]
    pairs = list(itertools.pairwise(cuts))
    assert_same([row for cut in pairs for row in topic.read(*cut)], expected)


def test_a_batch_that_ends_with_a_plain_message_between_chunks_loses_none(
    topic: ChunkedTopic,
) -> None:
    first = [Chunk("a", 0, 3), Chunk("plain", 0, 1), Chunk("a", 1, 3)]
    places = topic.send(first)
    end = topic.end()
    assert end == places[1], "the message after the plain one is incomplete"
    assert topic.read(START, end) == whole(first[:2], places[:2])
    rest = [Chunk("a", 2, 3)]
    last = topic.send(rest)
    assert topic.end() == last[0]
    assert topic.read(end, last[0]) == whole([*first, *rest], [*places, *last])[1:]
    assert topic.notes() == [("a", "open", 1), ("a", "complete", 3)]


def test_the_broker_keeps_the_first_chunks_of_a_message_split_by_a_batch(
    topic: ChunkedTopic,
) -> None:
    sent = [Chunk("x", 0, 1), Chunk("a", 0, 2), Chunk("plain", 0, 1)]
    with PulsarAdmin(topic.connection) as admin:
        incomplete = IncompleteTable.of(topic.options)
        guard = RetentionGuard(admin, "guard", incomplete=incomplete)
        guard.begin([topic.name], {})
        places = topic.send(sent)

        def kept_after(end: Position) -> Position:
            guard.move({topic.name: end})
            return admin.state(topic.name).cursors["guard"]

        topic.read(START, places[2])
        assert kept_after(places[2])[:2] == places[0][:2]
        admin.unload(topic.name)  # so that the last chunk is in another ledger
        (last,) = topic.send([Chunk("a", 1, 2)])
        assert last.ledger > places[2].ledger
        assert topic.read(places[2], last) == [(last, "a", sent[1].payload + b"a:1 " * 20)]
        assert kept_after(last)[:2] == last[:2]
        # A message whose producer died is not kept forever.
        dead = topic.send([Chunk("dead", 0, 2), Chunk("plain", 0, 1)])
        topic.read(last, dead[1])
        assert kept_after(dead[1])[:2] == last[:2]
        assert incomplete.first_chunks(time.time_ns() // 10**6 + BOUND_MS) == {}


def test_a_message_that_is_never_finished_holds_nothing_back(topic: ChunkedTopic) -> None:
    sent = [Chunk("lost", 1, 2), Chunk("dead", 0, 3), Chunk("x", 0, 1), Chunk("dead", 1, 3)]
    places = topic.send(sent)
    end = topic.end()
    assert end == places[2]
    assert [key for _, key, _ in topic.read(START, end)] == ["x"]
    assert topic.notes() == [("dead", "open", 1), ("lost", "lost", 2)]
    # A resent first chunk starts the message again, and the message lands once it is complete.
    more = [Chunk("dead", 0, 3), Chunk("dead", 1, 3), Chunk("dead", 0, 3), Chunk("dead", 1, 3)]
    more += [Chunk("dead", 2, 3)]
    last = topic.send(more)
    assert_same(topic.read(end, topic.end()), whole(more, last))


@pytest.mark.parametrize("kind", [pulsar.CompressionType.LZ4, pulsar.CompressionType.ZSTD])
def test_compressed_chunks_land_although_the_admin_api_does_not_show_them(
    topic: ChunkedTopic, kind: pulsar.CompressionType
) -> None:
    payload = random.Random(5).randbytes(6 << 20)
    client = topic.connection.client()
    try:
        options = {"chunking_enabled": True, "compression_type": kind}
        sent = client.create_producer(topic.name, **options).send(payload)
    finally:
        client.close()
    last = Position(sent.ledger_id(), sent.entry_id())
    assert topic.end() == last
    first = Position(last.ledger, last.entry - 1)
    for after in (START, first):
        assert [each[2] for each in topic.read(after, last)] == [payload]


def test_transaction_markers_are_accounted_for(topic: ChunkedTopic, java: JavaClient) -> None:
    producer = java.producer(topic.name)
    for number in range(6):
        transaction = java.transaction()
        producer.newMessage(transaction).value(b"%d" % number).send()
        (transaction.abort if number % 2 else transaction.commit)().get()
    chunks = [Chunk("a", 0, 2), Chunk("b", 0, 2), Chunk("b", 1, 2), Chunk("a", 1, 2)]
    topic.send(chunks)
    found = topic.read(START, topic.end())
    assert [each[2] for each in found[:3]] == [b"0", b"2", b"4"]
    assert [each[1] for each in found[3:]] == ["b", "a"]
