"""Plans what a batch reads: where topics end, how far a batch may go, how it is cut into tasks.

Lives in the one Python process beside the driver that plans, with one connection to the admin
API. Cuts lie between entries, and never inside a message that its producer sent in chunks: the
client gives such a message only to who has read all of its chunks.
"""

import itertools
from collections.abc import Mapping, Sequence

from bronze.admin import Entry, PulsarAdmin
from bronze.backlog import PartitionLog, PartitionRange, share
from bronze.errors import SettingsError
from bronze.offsets import START, Offset, Position
from bronze.options import Bound, PulsarOptions

RECEIVER_BYTES = 32 << 20
RECEIVER_MESSAGES = (10, 10_000)


class Planner:
    """Plans for one reader. Not shared between threads; does not travel to workers."""

    def __init__(self, options: PulsarOptions) -> None:
        self._options = options
        self.admin = PulsarAdmin(options.connection)
        self.known_partitions: list[str] = []
        self._newest: dict[str, tuple[Position, Position, Entry | None]] = {}

    def partitions(self) -> list[str]:
        """The topic partitions that the options name, as they are now.

        Raises:
            BrokerError: a topic does not exist, or the broker does not answer.
        """
        topics = list(self._options.topics)
        if self._options.topics_pattern:
            topics = self.admin.matching_topics(self._options.topics_pattern)
        return [name for topic in topics for name in self.admin.partitions(topic)]

    def last_positions(self) -> Offset:
        """The last complete message of each partition that has one."""
        found = {}
        self.known_partitions = self.partitions()
        for name in self.known_partitions:
            last = self.admin.last_position(name)
            if last.entry >= 0:
                known = self._newest.get(name)
                if known is None or known[0] != last:
                    complete, entry = self._complete(name, last)
                    self._newest[name] = known = (last, complete, entry)
                if known[1] > START:
                    found[name] = known[1]
        return found

    def resolve(self, bound: Bound) -> Offset:
        """The positions that a bound means.

        Raises:
            SettingsError: it names a partition that is none of the options' topics.
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
                    f"A position is given for '{name}', which is no partition of the topics to "
                    f"read; these are {', '.join(names)}."
                )
                raise SettingsError(message)
        return dict(bound)

    def limited(self, begun: Offset, end: Offset) -> Offset:
        """As far from `begun` towards `end` as the options allow, shared fairly by backlog."""
        messages = self._options.max_messages_per_trigger
        total_size = self._options.max_bytes_per_trigger
        begun = {n: p for n, p in begun.items() if n in end and p < end[n]}
        logs = {name: self.admin.log(name) for name in end}
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
        return {
            name: self._cut(name, log, begun.get(name, START), allowed[name], end[name])
            for name, log in logs.items()
        }

    def ranges(self, begun: Mapping[str, Position], end: Offset) -> Sequence[PartitionRange]:
        """The tasks of a batch: one per partition with something new, more for a huge one."""
        found = []
        for name, until in end.items():
            after = begun.get(name, START)
            if until != after:  # before it, where a topic was made anew: then from its start
                found += self._split(name, after if until > after else START, until)
        return found

    def close(self) -> None:
        """Give up the connection."""
        self.admin.close()

    def _split(self, name: str, after: Position, until: Position) -> list[PartitionRange]:
        log = self.admin.log(name)
        entries, size = _entries(log, after, until), _bytes(log, after, until)
        pieces = min(-(-size // self._options.max_bytes_per_task), entries) or 1
        ends = [
            self._cut(name, log, after, entries * piece // pieces, until)
            for piece in range(1, pieces)
        ]
        cuts = sorted({after, *ends, until})
        message = max(size // max(entries, 1) // self._batch_size(name), 1)
        least, most = RECEIVER_MESSAGES
        queue = max(least, min(RECEIVER_BYTES // message, most))
        return [PartitionRange(name, *cut, queue) for cut in itertools.pairwise(cuts)]

    def _cut(
        self, name: str, log: PartitionLog, begun: Position, entries: int, end: Position
    ) -> Position:
        """The end of a range of so many entries, moved so that it ends with a whole message."""
        cut = min(log.advance(begun, entries), end)
        while cut < end:
            complete, _ = self._complete(name, cut, log)
            if complete > begun:
                return complete
            cut = min(log.advance(cut, 1), end)
        return cut

    def _complete(
        self, name: str, position: Position, log: PartitionLog | None = None
    ) -> tuple[Position, Entry | None]:
        """A position, or the one before the message whose chunks go on behind it; its entry."""
        entry = self.admin.entry(name, position)
        found = entry
        while found is not None and found.ends_inside_a_message:
            log = log or self.admin.log(name)
            upto = log.entries_behind(START) - log.entries_behind(position)
            position = log.advance(START, upto - (found.chunk or 0) - 1)
            found = None if position == START else self.admin.entry(name, position)
        return position, entry

    def _batch_size(self, name: str) -> int:
        entry = self._newest[name][2] if name in self._newest else None
        return entry.messages if entry else 1


def _entries(log: PartitionLog, after: Position, until: Position) -> int:
    return log.entries_behind(after) - log.entries_behind(until)


def _bytes(log: PartitionLog, after: Position, until: Position) -> int:
    return log.bytes_behind(after) - log.bytes_behind(until)
