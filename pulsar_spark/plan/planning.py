"""Plans what a batch reads: where topics end, how far the batch goes, and how tasks divide it.

Runs in the one Python process beside the driver that plans batches, with one connection to the
admin API. A batch ends with an entry that readers see. It never ends with a transaction marker,
with an entry that an open transaction holds back, or with a chunk that is not the last of its
message. Other producers' messages may lie between the chunks of a message, so a batch may still end
in the middle of one. Such a message lands with the batch that has its last chunk (`read/gaps.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pulsar_spark.broker.admin import Entry, PartitionState, PulsarAdmin, TopicNotFoundError
from pulsar_spark.broker.wire import EntryReader
from pulsar_spark.eras import Partitioning, Partitionings, Span
from pulsar_spark.errors import SettingsError
from pulsar_spark.offsets import START, Estimate, Offset, Position, topic_of
from pulsar_spark.options import Bound, PulsarOptions
from pulsar_spark.plan.ledgers import Ledger, PartitionLog, PartitionRange, share

if TYPE_CHECKING:
    from pulsar_spark.plan.tasks import ReadTask

ONE_TASK_BYTES = 1 << 20
RECEIVER_BYTES = 32 << 20
RECEIVER_MESSAGES = (10, 10_000)
TOGETHER_MS = 500  # partitions that one request creates follow one another faster than this
UNORDERED = Partitioning(0)
LEDGERS_BEFORE = 20
STORED_SECONDS = 1.0
LOOKS_KEPT = 8


class Planner:
    """Plans for one reader. Not thread-safe, and never sent to workers."""

    def __init__(self, options: PulsarOptions, admin: PulsarAdmin) -> None:
        self._options = options
        self.admin = admin
        self._topics: dict[str, list[str]] = {}
        self._looked_at = 0
        self.states: dict[str, PartitionState] = {}
        self._newest: dict[str, tuple[Position, Position, int]] = {}
        self._held_back: set[str] = set()  # partitions whose end an open transaction holds back
        self._logs: dict[str, PartitionLog] = {}
        self._seen: dict[str, deque[Ledger]] = {}  # by partition: its newest ledger at recent looks
        # By partition that ended within a chunked message: that end, and the position and entry up
        # to which the partition is read instead.
        self._within: dict[str, tuple[Position, Position, Entry | None]] = {}

    @property
    def known_partitions(self) -> list[str]:
        """The topic partitions of the options' topics, as of the last look."""
        return list(itertools.chain(*self._topics.values()))

    def partitions(self) -> list[str]:
        """Ask the broker for the current topic partitions of the options' topics.

        Raises:
            BrokerError: a topic does not exist, or the broker does not answer.
        """
        return list(itertools.chain(*self._by_topic().values()))

    def _by_topic(self) -> dict[str, list[str]]:
        topics = list(self._options.topics)
        if self._options.topics_pattern:
            topics = self.admin.matching_topics(self._options.topics_pattern)
        return {topic: self.admin.partitions(topic) for topic in topics}

    def look(self) -> None:
        """Fetch the end, the ledgers and the subscriptions of every partition.

        The partitions are listed again once their ends are known. If the list has not changed, no
        producer knew of other partitions when it wrote the messages before these ends.
        """
        self._topics = self._topics or self._by_topic()
        while True:
            known, self._looked_at = self._topics, time.time_ns() // 1000
            try:
                self.states = {name: self.admin.state(name) for name in self.known_partitions}
            except TopicNotFoundError:  # expected if the topic was deleted since it was listed
                if not self._topics_changed():
                    raise
                continue
            self._logs = {
                name: self._compared(name, each.log) for name, each in self.states.items()
            }
            self._topics = self._by_topic()
            if self._topics == known:
                return

    def _compared(self, name: str, log: PartitionLog) -> PartitionLog:
        """Add to a partition's log the states of its newest ledger at earlier looks."""
        seen = self._seen.setdefault(name, deque(maxlen=LOOKS_KEPT))
        compared = PartitionLog(log.ledgers, tuple(seen))
        if log.ledgers and log.ledgers[-1] not in seen:
            seen.append(log.ledgers[-1])
        return compared

    def _topics_changed(self) -> bool:
        """List the topics again, and return whether the list has changed."""
        known, self._topics = self._topics, self._by_topic()
        return self._topics != known

    def last_positions(self) -> Offset:
        """Look, and return the last complete message of each partition that has one."""
        while True:
            self.look()
            try:
                found = {name: self._last_position(name) for name in self.known_partitions}
            except TopicNotFoundError:
                if not self._topics_changed():
                    raise
                continue
            return {name: position for name, position in found.items() if position.entry >= 0}

    def partitionings(self, read: Offset, known: Partitionings) -> dict[str, Partitioning]:
        """The partitioning of each topic that has one, which orders its messages.

        Call it after a look.

        Args:
            read: the offset up to which batches are planned.
            known: the partitionings at that offset. Topics that are new to the reader are absent.
        """
        found = {}
        for topic, names in self._topics.items():
            if names == [topic]:  # a topic without partitions never gets any
                if topic in known:  # but it may have come from another broker
                    found[topic] = known[topic]
                continue
            if topic not in known:
                found[topic] = self._first_seen(names, read)
            elif known[topic].partitions != len(names):
                found[topic] = known[topic].changed(len(names), read, self._looked_at)
            else:
                ends = {name: self._newest[name][0] for name in names if name in self._newest}
                found[topic] = known[topic].settled(ends, self._looked_at)
        return found

    def _first_seen(self, names: Sequence[str], read: Offset) -> Partitioning:
        """The partitioning of a topic that is new to the reader.

        It begins an era at once, unless all partitions were created together and none has messages
        from before that.
        """
        first = Partitioning(len(names))
        if not set(names) - set(read):  # read by an older version, which stored no partitionings
            return first
        created = [self.admin.created_at(name) for name in names]
        known = sorted(each for each in created if each is not None)
        gaps = (later - earlier for earlier, later in itertools.pairwise(known))
        at_once = len(known) == len(names) and max(gaps, default=0) < TOGETHER_MS
        if at_once and not any(self._has_older(name, known[-1]) for name in names):
            return first
        return first.changed(len(names), read, self._looked_at)

    def _has_older(self, name: str, epoch_ms: int) -> bool:
        """Whether a partition has messages published before an instant."""
        return _entries(self._log(name), START, self.admin.position_at(name, epoch_ms)) > 0

    def _last_position(self, name: str) -> Position:
        last = self.states[name].last
        if last.entry < 0:
            return last
        known = self._newest.get(name)
        # Entries that an open transaction holds back may become readable without a new entry.
        if known is None or known[0] != last or name in self._held_back:
            self._held_back.discard(name)
            readable, entry = self._readable(name, last)
            known = (last, readable, entry.messages if entry else 1)
            self._newest[name] = known
        return known[1]

    def resolve(self, bound: Bound) -> Offset:
        """The positions that a bound stands for.

        Raises:
            SettingsError: it names a partition that does not belong to the options' topics.
        """
        if bound == "earliest":
            return {}
        if bound == "latest":
            return self.last_positions()
        names = self.partitions()
        if isinstance(bound, int):
            return {name: self.admin.position_at(name, bound) for name in names}
        for name in bound:
            if name not in names:
                message = (
                    f"A position is given for '{name}', which is not a partition of the topics to "
                    f"read. The partitions are {', '.join(names)}."
                )
                raise SettingsError(message)
        return dict(bound)

    def limited(self, begun: Offset, end: Offset) -> Offset:
        """Go from `begun` towards `end` as far as the options' limits allow.

        Partitions share the limits in proportion to their backlogs.
        """
        messages = self._options.max_messages_per_trigger
        total_size = self._options.max_bytes_per_trigger
        begun = {n: p for n, p in begun.items() if n in end and p < end[n]}
        logs = {name: self._log(name) for name in end}
        entries = {n: _entries(log, begun.get(n, START), end[n]) for n, log in logs.items()}
        allowed = dict(entries)
        if messages is not None:
            batch = {n: self._batch_size(n) for n in logs}
            shares = share(messages, {n: entries[n] * batch[n] for n in logs})
            allowed = {n: min(allowed[n], max(shares.get(n, 0) // batch[n], 1)) for n in logs}
        if total_size is not None:
            sizes = {n: _bytes(log, begun.get(n, START), end[n]) for n, log in logs.items()}
            for name, size in share(total_size, sizes).items():
                fit = entries[name] * size // max(sizes[name], 1)
                allowed[name] = min(allowed[name], max(fit, 1))
        return {n: self._cut(n, begun.get(n, START), allowed[n], end[n]) for n in logs}

    def is_news(self, name: str, begun: Position, last: Position) -> bool:
        """Whether a partition that ends at `last` has messages after `begun`.

        `last` may be before `begun`, because the broker needs a while to recover a topic's
        transactions after loading it. There is nothing new then, unless the partition has a
        different log because the cluster was recreated.
        """
        if last >= begun:
            return last > begun
        ledgers = self._log(name).ledgers
        return bool(ledgers) and ledgers[-1].id < begun.ledger

    def waiting(self, begun: Offset, end: Offset) -> dict[str, tuple[int, int]]:
        """The number of entries and of stored bytes between two offsets, by partition."""
        found = {}
        for name, until in end.items():
            after = begun.get(name, START)
            log = self._log(name) if after < until else PartitionLog([])
            found[name] = _entries(log, after, until), _bytes(log, after, until)
        return found

    def estimate(self, begun: Offset, end: Offset) -> Estimate:
        """Estimate how much a batch between two offsets holds."""
        # An end before `begun` means that the topic was recreated. All of it is new then.
        after = {n: begun.get(n, START) for n, until in end.items() if until >= begun.get(n, START)}
        found = self.waiting(after, end)
        messages = sum(entries * self._batch_size(n) for n, (entries, _) in found.items())
        return Estimate(messages, sum(size for _, size in found.values()))

    def tasks(
        self, begun: Mapping[str, Position], end: Offset, order: Partitionings
    ) -> Sequence[ReadTask]:
        """Divide a batch into tasks: one per partition with new messages, more for a large one.

        A small batch is a single task. Further tasks would cost more time than they save, because
        each starts a client of its own, and each writes a file.

        Args:
            begun: the positions after which the batch begins.
            end: the positions at which it ends.
            order: the partitionings of the topics, which order messages of different partitions.
        """
        from pulsar_spark.plan.tasks import ReadTask

        partitionings = {n: order.get(topic_of(n), UNORDERED) for n in end}
        ranges, total = [], 0
        for name, until in end.items():
            after = begun.get(name, START)
            if until != after:
                after = after if until > after else START  # the topic was recreated
                total += _bytes(self._log(name), after, until)
                for begin, stop, span in partitionings[name].pieces(name, after, until):
                    ranges += self._split(name, begin, stop, span)
        if ranges and total <= min(ONE_TASK_BYTES, self._options.max_bytes_per_task):
            return [ReadTask(ranges)]
        return [ReadTask([each]) for each in ranges]

    def _split(
        self, name: str, after: Position, until: Position, span: Span | None
    ) -> list[PartitionRange]:
        size = _bytes(self._log(name), after, until)
        entries = _entries(self._log(name), after, until)
        pieces = min(-(-size // self._options.max_bytes_per_task), entries) or 1
        ends = [
            self._cut(name, after, entries * piece // pieces, until) for piece in range(1, pieces)
        ]
        cuts = sorted({after, *ends, until})
        message = max(size // max(entries, 1) // self._batch_size(name), 1)
        least, most = RECEIVER_MESSAGES
        queue = max(least, min(RECEIVER_BYTES // message, most))
        horizon = self.admin.compacted(name) if self._options.read_compacted else START
        ledgers = self._ledgers(name, after, until)
        return [
            PartitionRange(name, *cut, queue, horizon, span, ledgers)
            for cut in itertools.pairwise(cuts)
        ]

    def _ledgers(self, name: str, after: Position, until: Position) -> list[Ledger]:
        """The ledgers of a range, and some before it, which may hold chunks of its messages."""
        known = [ledger for ledger in self._log(name).ledgers if ledger.id <= until.ledger]
        before = [ledger for ledger in known if ledger.id < after.ledger]
        return known[max(len(before) - LEDGERS_BEFORE, 0) :]

    def _cut(self, name: str, begun: Position, entries: int, end: Position) -> Position:
        """The end of a range of about `entries` entries, moved to the end of a whole message.

        It is moved back, or forward if nothing would be left of the range.
        """
        log = self._log(name)
        cut = min(log.advance(begun, entries), end)
        while cut < end:
            whole, _ = self._readable(name, cut)
            if whole > begun:
                return whole
            cut = min(log.advance(cut, 1), end)
        return cut

    def _log(self, name: str) -> PartitionLog:
        """A partition's log as of the last look; fetched if there was none."""
        if name not in self._logs:
            self._logs[name] = self.admin.log(name)
        return self._logs[name]

    def _readable(self, name: str, position: Position) -> tuple[Position, Entry | None]:
        """The last position up to the given one at which a batch may end, and its entry.

        The position is START if there is none.
        """
        entry = self._entry(name, position)
        known = self._within.get(name)
        begun = entry is not None and not entry.is_pending and not entry.ends_a_message
        within = position if begun else None
        if entry is None and self._options.read_compacted:
            return position, None  # the compacted copy may reach up to this position
        if entry is not None and entry.is_pending:
            self._held_back.add(name)
            position = self.admin.last_readable(name)
            entry = self._entry(name, position) if position.entry >= 0 else None
        while entry is None or entry.is_hidden or not entry.ends_a_message:
            if entry is None:  # its ledger was deleted since the last look
                self._logs.pop(name, None)
            log = self._log(name)
            # Go back by one entry, as other messages may lie between the chunks of one. If the
            # entry is gone, go to the last one before it that is left.
            skipped = 1 if entry else 0
            upto = log.entries_behind(START) - log.entries_behind(position)
            position = log.advance(START, upto - skipped)
            if position == START:
                return START, None
            if within and known and position == known[0]:
                position, entry = known[1:]
                break
            entry = self._entry(name, position)
        if within:
            self._within[name] = within, position, entry
        return position, entry

    def _entry(self, name: str, position: Position) -> Entry | None:
        """What an entry holds; None if it is gone.

        The entry itself is read if the admin API does not answer at once.
        """
        found = self.admin.glance(name, position)
        if found is not None:
            return found
        with (
            contextlib.suppress(OSError),
            EntryReader(self._options.connection, name, position) as reader,
        ):
            stored = reader.next(STORED_SECONDS)
            if stored is not None and stored.position[:2] == position[:2]:
                return Entry(stored.messages, stored.chunk, stored.chunks, False, False)
        return self.admin.entry(name, position)

    def _batch_size(self, name: str) -> int:
        return self._newest[name][2] if name in self._newest else 1


def _entries(log: PartitionLog, after: Position, until: Position) -> int:
    return log.entries_behind(after) - log.entries_behind(until)


def _bytes(log: PartitionLog, after: Position, until: Position) -> int:
    return log.bytes_behind(after) - log.bytes_behind(until)
