"""Accounts for the entries of a range for which the client silently delivered no message.

Such an entry is a transaction marker, belongs to an aborted transaction, or holds a chunk. Any
other entry fails the task. The client loses chunked messages when more than ten are in progress at
once, or when one lies partly outside the range. A message belongs to the range that holds its last
chunk. This module assembles such messages from their chunks, some of which may lie before the
range.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsar_spark.broker.admin import PulsarAdmin
from pulsar_spark.broker.wire import Entry, EntryReader, reading
from pulsar_spark.errors import BrokerError
from pulsar_spark.offsets import START, WHOLE, Position
from pulsar_spark.options import PulsarOptions
from pulsar_spark.plan.ledgers import PartitionLog, PartitionRange
from pulsar_spark.read.incomplete import BOUND_MS, COMPLETE, LOST, OPEN, Incomplete, IncompleteTable

WIDER = 8  # each search goes this many times as far back as the one before
NEAR = 1_000  # reading over so many entries is cheaper than subscribing again
CHECK_SECONDS = 1.0


class Stretch(NamedTuple):
    """Consecutive entries of one ledger, from `first` up to and including `last`."""

    ledger: int
    first: int
    last: int


@dataclass(frozen=True)
class ChunkedMessage:
    """A message assembled from its chunks, with those methods of the client's that rows need."""

    entry: Entry  # the last chunk
    content: bytes

    def data(self) -> bytes:
        """The payload."""
        return self.content

    def partition_key(self) -> str:
        """The key. Raises UnicodeDecodeError if it is not UTF-8, as the client does."""
        return (self.entry.metadata().key or b"").decode()

    def properties(self) -> dict[str, str]:
        """The properties. Raises UnicodeDecodeError if any is not UTF-8, as the client does."""
        return {n.decode(): v.decode() for n, v in self.entry.metadata().properties}

    def event_timestamp(self) -> int:
        """The event time in epoch milliseconds, 0 if there is none."""
        return self.entry.number(12)

    def publish_timestamp(self) -> int:
        """The publish time in epoch milliseconds."""
        return self.entry.publish_time

    def int_schema_version(self) -> int:
        """The schema version, -1 if there is none."""
        version = self.entry.fields.get(16, [b""])[-1]
        return int.from_bytes(version, "big") if isinstance(version, bytes) and version else -1

    def has_null_value(self) -> bool:
        """Whether the value is null rather than empty."""
        return self.entry.metadata().is_null


class Gaps:
    """The gaps that the client leaves in one range. Asks the broker only if there are any.

    The reader of the range calls `note` for each gap, and then `messages` once.
    """

    def __init__(self, options: PulsarOptions, work: PartitionRange) -> None:
        self._options = options
        self._work = work
        self._log = PartitionLog(work.ledgers)
        self._stretches: list[Stretch] = []

    def note(self, before: Position, at: Position) -> None:
        """Note the entries between two consecutive ones from the client, which are excluded."""
        before = max(before, self._work.compacted)  # compaction removed what is missing up to there
        for ledger, entries, _ in self._work.ledgers:
            if before.ledger <= ledger <= at.ledger:
                unread = before.entry + (before.batch == WHOLE)
                first = max(unread, 0) if ledger == before.ledger else 0
                last = (at.entry if ledger == at.ledger else entries) - 1
                if first <= last:
                    self._stretches.append(Stretch(ledger, first, last))

    def only_chunks_follow(self, before: Position) -> bool:
        """Whether the rest of the range holds only chunks, so that the client delivers nothing."""
        first, until = self._after(before), self._work.until
        with reading(self._options.connection, self._work.topic, first) as reader:
            while entry := reader.next(CHECK_SECONDS):
                if entry.chunk is None or entry.position[:2] > until[:2]:
                    return False
                if entry.position[:2] == until[:2]:
                    return True
        return False

    def messages(self) -> Iterator[tuple[Position, ChunkedMessage]]:
        """Assemble the messages that the client lost. Called once all gaps are noted.

        Also records incomplete messages in the table `bronze.incomplete_messages`.

        Yields:
            The position of each message's last chunk, and the message.

        Raises:
            BrokerError: an entry should have delivered a message, or cannot be read.
        """
        stretches = self._without_hidden()
        if not stretches:
            return
        wanted, under_way = self._chunks(stretches)
        begun = Position(*stretches[0][:2])
        notes = [each for each in under_way.values() if each.state == OPEN]
        for first, message in self._assembled(wanted, begun):
            if first[:2] <= self._work.after[:2]:
                notes.append(self._note(message.entry, first, COMPLETE))
            yield message.entry.position, message
        notes += [self._note(entry, entry.position, LOST) for entry in wanted.values()]
        IncompleteTable.of(self._options).record(notes)

    def _without_hidden(self) -> list[Stretch]:
        """The gaps from the first entry on that the admin API does not report as hidden.

        Most topics with gaps have transactions and no chunks, and then nothing is left.
        """
        if not self._stretches:
            return []
        with PulsarAdmin(self._options.connection) as admin:
            for number, stretch in enumerate(self._stretches):
                for entry in range(stretch.first, stretch.last + 1):
                    found = admin.glance(self._work.topic, Position(stretch.ledger, entry))
                    if found is None or not found.is_hidden:
                        rest = self._stretches[number + 1 :]
                        return [Stretch(stretch.ledger, entry, stretch.last), *rest]
        return []

    def _chunks(
        self, stretches: Sequence[Stretch]
    ) -> tuple[dict[Position, Entry], dict[bytes, Incomplete]]:
        """The last chunks in the gaps, and the messages that are unfinished after the range."""
        wanted: dict[Position, Entry] = {}
        under_way: dict[bytes, Incomplete] = {}
        unseen = {(s.ledger, entry) for s in stretches for entry in range(s.first, s.last + 1)}
        for entry in self._visible(stretches):
            unseen.discard(entry.position[:2])
            if entry.chunk is None or entry.chunks is None:
                self._fail(entry.position, "holds messages that the client did not deliver")
            elif entry.chunk + 1 == entry.chunks:
                wanted[entry.position] = entry._replace(payload=b"")
                under_way.pop(entry.uuid, None)
            else:
                known = under_way.get(entry.uuid)
                first = known.first if known and entry.chunk else entry.position
                under_way[entry.uuid] = self._note(entry, first, OPEN)
        with PulsarAdmin(self._options.connection) as admin:
            for place in sorted(unseen):
                position = Position(*place)
                found = admin.entry(self._work.topic, position)
                if found is None or not found.is_hidden:
                    self._fail(
                        position, "was not sent by the broker" if found else "no longer exists"
                    )
        # Messages completed within the range came from the client, or are in `wanted`.
        return wanted, under_way

    def _assembled(
        self, wanted: dict[Position, Entry], begun: Position
    ) -> Iterator[tuple[Position, ChunkedMessage]]:
        """Assemble the wanted messages, and yield each with the position of its first chunk.

        Searches farther back until all are whole or the bound is reached. Messages whose first
        chunks were not found stay in `wanted`.
        """
        back = 0
        while wanted:
            uuids = {entry.uuid for entry in wanted.values()}
            oldest: Entry | None = None
            parts: dict[bytes, list[Entry]] = {}
            for entry in self._between(begun, max(wanted)):
                oldest = oldest or entry
                if entry.chunk is None or entry.uuid not in uuids:
                    continue
                known = parts.setdefault(entry.uuid, []) if entry.chunk else []
                if entry.chunk == len(known):
                    parts[entry.uuid] = [*known, entry]
                elif entry.chunk > len(known):
                    parts.pop(entry.uuid)
                if entry.position in wanted and len(parts.get(entry.uuid, ())) == entry.chunks:
                    del wanted[entry.position]
                    whole = parts.pop(entry.uuid)
                    content = entry.content(b"".join(part.payload for part in whole))
                    yield whole[0].position, ChunkedMessage(entry._replace(payload=b""), content)
            last = max((entry.publish_time for entry in wanted.values()), default=0)
            before = self._entries_up_to(begun) - 1
            if before <= 0 or (oldest and last - oldest.publish_time > BOUND_MS):
                return
            back = back * WIDER or max((e.chunk or 0 for e in wanted.values()), default=0) + 1
            begun = self._after(self._log.advance(START, max(before - back, 0)))

    def _visible(self, stretches: Sequence[Stretch]) -> Iterator[Entry]:
        """The entries of some stretches that a reader sees."""
        begun, at = stretches[0], 0
        while at < len(stretches):
            begun, end = stretches[at], at
            while end + 1 < len(stretches) and self._is_near(stretches[end], stretches[end + 1]):
                end += 1
            within = {(s.ledger, n) for s in stretches[at : end + 1] for n in range(s[1], s[2] + 1)}
            until = Position(stretches[end].ledger, stretches[end].last)
            first = Position(begun.ledger, begun.first)
            yield from (e for e in self._between(first, until) if e.position[:2] in within)
            at = end + 1

    def _is_near(self, stretch: Stretch, other: Stretch) -> bool:
        between = self._log.entries_behind(Position(stretch.ledger, stretch.last))
        return between - self._log.entries_behind(Position(other.ledger, other.first)) < NEAR

    def _between(self, first: Position, until: Position) -> Iterator[Entry]:
        """The entries that a reader sees from `first` up to and including `until`."""
        with reading(self._options.connection, self._work.topic, first) as reader:
            while entry := self._next(reader):
                if entry.position[:2] > until[:2]:
                    return
                yield entry
                if entry.position[:2] == until[:2]:
                    return

    def _next(self, reader: EntryReader) -> Entry | None:
        return reader.next(self._options.read_timeout_ms / 1000)

    def _after(self, position: Position) -> Position:
        """The first entry after a position."""
        found = self._log.advance(position, 1)
        return found if found != position else Position(position.ledger, position.entry + 1)

    def _entries_up_to(self, position: Position) -> int:
        """The number of entries up to and including a position."""
        return self._log.entries_behind(START) - self._log.entries_behind(position)

    def _note(self, entry: Entry, first: Position, state: str) -> Incomplete:
        came = (entry.chunk or 0) + 1
        message = entry.uuid.decode(errors="replace")
        place = self._work.topic, message, first, entry.position
        return Incomplete(*place, came, entry.chunks or came, entry.publish_time, state)

    def _fail(self, position: Position, why: str) -> None:
        message = (
            f"{self._work.topic}: entry {position} of the range after {self._work.after} up to "
            f"{self._work.until} {why}. Nothing of the batch was landed; it is tried again. If "
            "this continues, look for the entry in the broker's log."
        )
        raise BrokerError(message)
