"""Accounts for the entries of a range that the client passed over without a word.

An entry that gives no message is the mark of a transaction, of an aborted one, or a chunk; any
other fails the task. The client loses messages in chunks when more than ten are under way at once,
or when one is not there as a whole within the range. A message belongs to the range that has its
last chunk: it is put together here, of chunks that may be before the range.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bronze.admin import PulsarAdmin
from bronze.backlog import PartitionLog, PartitionRange
from bronze.errors import BrokerError
from bronze.incomplete import COMPLETE, LOST, OPEN, Incomplete, IncompleteTable
from bronze.offsets import START, WHOLE, Position
from bronze.options import PulsarOptions
from bronze.wire import Entry, EntryReader, reading

BOUND_MS = 600_000  # a message whose chunks are farther apart than that is not looked for
WIDER = 8  # by how much more each further look goes back
NEAR = 1_000  # entries over which one reads on rather than subscribe again
CHECK_SECONDS = 1.0


class Stretch(NamedTuple):
    """Entries of one ledger."""

    ledger: int
    first: int
    last: int


@dataclass(frozen=True)
class ChunkedMessage:
    """A message that was put together here; has those methods of the client's that rows need."""

    entry: Entry  # the last chunk
    content: bytes

    def data(self) -> bytes:
        """The payload."""
        return self.content

    def partition_key(self) -> str:
        """The key; raises UnicodeDecodeError, as the client does."""
        return (self.entry.metadata().key or b"").decode()

    def properties(self) -> dict[str, str]:
        """The properties; raises UnicodeDecodeError, as the client does."""
        return {n.decode(): v.decode() for n, v in self.entry.metadata().properties}

    def event_timestamp(self) -> int:
        """In epoch ms, 0 if there is none."""
        return self.entry.number(12)

    def publish_timestamp(self) -> int:
        """In epoch ms."""
        return self.entry.publish_time

    def int_schema_version(self) -> int:
        """-1 if there is none."""
        version = self.entry.fields.get(16, [b""])[-1]
        return int.from_bytes(version, "big") if isinstance(version, bytes) and version else -1

    def has_null_value(self) -> bool:
        """Whether the value is NULL rather than empty."""
        return self.entry.metadata().is_null


class Gaps:
    """The gaps of one range; asks the broker only if there are any."""

    def __init__(self, options: PulsarOptions, work: PartitionRange) -> None:
        self._options = options
        self._work = work
        self._log = PartitionLog(work.ledgers)
        self._stretches: list[Stretch] = []

    def note(self, before: Position, at: Position) -> None:
        """Note what is between an entry and the next that the client gave, both not included."""
        before = max(before, self._work.compacted)  # what is missing there was compacted
        for ledger, entries, _ in self._work.ledgers:
            if before.ledger <= ledger <= at.ledger:
                unread = before.entry + (before.batch == WHOLE)
                first = max(unread, 0) if ledger == before.ledger else 0
                last = (at.entry if ledger == at.ledger else entries) - 1
                if first <= last:
                    self._stretches.append(Stretch(ledger, first, last))

    def only_chunks_follow(self, before: Position) -> bool:
        """Whether all that is left of the range are chunks, for which the client gives nothing."""
        first, until = self._after(before), self._work.until
        with reading(self._options.connection, self._work.topic, first) as reader:
            while entry := reader.next(CHECK_SECONDS):
                if entry.chunk is None or entry.position[:2] > until[:2]:
                    return False
                if entry.position[:2] == until[:2]:
                    return True
        return False

    def messages(self) -> Iterator[tuple[Position, ChunkedMessage]]:
        """The messages that the client lost, once all gaps are noted.

        Raises:
            BrokerError: an entry is none of those that may give no message.
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
        """The gaps without what no reader sees, up to the first that the admin API does not know.

        Most topics with gaps have transactions and no chunks: then this is all of them.
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
        """The last chunks in the gaps, and how far messages have come at the end of the range."""
        wanted: dict[Position, Entry] = {}
        under_way: dict[bytes, Incomplete] = {}
        unseen = {(s.ledger, entry) for s in stretches for entry in range(s.first, s.last + 1)}
        for entry in self._visible(stretches):
            unseen.discard(entry.position[:2])
            if entry.chunk is None or entry.chunks is None:
                self._fail(entry.position, "holds messages, and the client passed over them")
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
                    self._fail(position, "is not given by the broker" if found else "is gone")
        # What is complete since was given by the client, or is wanted.
        return wanted, under_way

    def _assembled(
        self, wanted: dict[Position, Entry], begun: Position
    ) -> Iterator[tuple[Position, ChunkedMessage]]:
        """The wanted messages with their first chunks' positions; leaves those without a beginning.

        Looks farther back as long as one is not whole.
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
        """What readers see of some stretches."""
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
        """What readers see from one entry up to and with another."""
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
        """The first entry behind a position."""
        found = self._log.advance(position, 1)
        return found if found != position else Position(position.ledger, position.entry + 1)

    def _entries_up_to(self, position: Position) -> int:
        """How many entries there are, up to and with one."""
        return self._log.entries_behind(START) - self._log.entries_behind(position)

    def _note(self, entry: Entry, first: Position, state: str) -> Incomplete:
        came = (entry.chunk or 0) + 1
        message = entry.uuid.decode(errors="replace")
        place = self._work.topic, message, first, entry.position
        return Incomplete(*place, came, entry.chunks or came, entry.publish_time, state)

    def _fail(self, position: Position, why: str) -> None:
        message = (
            f"{self._work.topic}: entry {position} of the range behind {self._work.after} up to "
            f"{self._work.until} {why}. Nothing of the batch was landed; it is tried again. If "
            "this goes on, see the broker's log for what is wrong with the entry."
        )
        raise BrokerError(message)
