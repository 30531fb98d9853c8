"""The retention guard: a durable subscription per query, from which nobody reads.

The subscription stands at the last committed position, so the broker keeps all unread messages. It
also reveals that the broker did not keep them: the subscription is then gone, or ahead of the
checkpoint.

The subscription is compared with the checkpoint before every batch and before every move. A move
never takes it back, so no trace of a loss is erased. A move is one request after its comparison.
Messages dropped between the two are still stored, and the move protects them again, unless the
broker deletes their ledger at that moment. In that case, the next look finds the ledger missing.
"""

import time
from collections.abc import Mapping

from pulsar_spark.broker.admin import PartitionState, PulsarAdmin, TopicNotFoundError
from pulsar_spark.errors import DataLossError
from pulsar_spark.offsets import START, Offset, Position, topic_of
from pulsar_spark.plan.data_loss import LossTable
from pulsar_spark.plan.ledgers import PartitionLog
from pulsar_spark.read.incomplete import IncompleteTable


class RetentionGuard:
    """Guards the topic partitions of one query.

    losses: the audit table in which accepted losses are recorded; None to stop at a loss.
    incomplete: the table of chunked messages of which batches have read only a part. The broker
        keeps their first chunks, because the batch with the last chunk reads them again.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        subscription: str,
        losses: LossTable | None = None,
        incomplete: IncompleteTable | None = None,
    ) -> None:
        self._admin = admin
        self._subscription = subscription
        self._losses = losses
        self._incomplete = incomplete
        self._checked: Offset | None = None
        self._moved: Offset = {}
        self._seen: dict[str, PartitionLog] = {}  # at the last check
        self._settled: Offset = {}  # positions up to which dropped messages are accounted for
        self._deleted: set[str] = set()

    def begin(self, partitions: list[str], begun: Offset) -> None:
        """Make the broker keep everything after `begun`. Called for a new checkpoint."""
        for name in partitions:
            position = begun.get(name, START)
            kept = self._admin.subscription(name, self._subscription)
            if kept is not None and kept > position:  # left by an earlier checkpoint
                self._admin.delete_subscription(name, self._subscription)
            if kept is None or kept > position:
                self._admin.create_subscription(name, self._subscription, position)

    def has_checked(self, begun: Offset) -> bool:
        """Whether `check` was called for the batch that starts at `begun`.

        It was not if an earlier run planned the batch.
        """
        return begun == self._checked

    def check(self, states: Mapping[str, PartitionState], begun: Offset) -> None:
        """Check that the broker still has everything after `begun`. Called before a batch.

        Args:
            states: the current states of the query's partitions.
            begun: the offset at which the batch starts.

        Raises:
            DataLossError: messages may be lost, and losses are not accepted. The message names the
                partition and the remedy.
        """
        for name in sorted(begun.keys() - states.keys() - self._deleted):
            self._lost(name, begun[name], None, "the topic was deleted")
            self._deleted.add(name)
        self._deleted -= states.keys()
        for name, state in states.items():
            self._check_partition(name, begun.get(name), state)
            self._seen[name] = state.log
        self._checked = begun

    def resume(self, begun: Offset, end: Offset | None = None) -> Offset:
        """The offset at which reading continues: after dropped messages that are accounted for.

        Args:
            begun: the offset at which the batch starts.
            end: the offset at which the batch ends, if it is planned already. Reading does not
                continue beyond it.
        """
        found = {name: max(begun.get(name, START), self._settled[name]) for name in self._settled}
        if end is not None:
            found = {name: min(p, end[name]) for name, p in found.items() if name in end}
        ahead = {name: p for name, p in found.items() if p > begun.get(name, START)}
        return {**begun, **ahead}

    def move(self, committed: Offset) -> None:
        """Let the broker drop the messages that are on disk now. Called after a commit.

        Raises:
            DataLossError: messages were dropped since the batch was planned.
        """
        wanted = self._incomplete.first_chunks(time.time_ns() // 10**6) if self._incomplete else {}
        for name, position in committed.items():
            first = wanted.get(name, position)
            target = Position(first.ledger, first.entry - 1) if first < position else position
            if self._moved.get(name) != target and name not in self._deleted:
                self._move_partition(name, position, target)
                self._moved[name] = target

    def _move_partition(self, name: str, position: Position, target: Position) -> None:
        try:
            state = self._admin.state(name)
        except TopicNotFoundError:
            self._lost(name, position, None, "the topic was deleted")
            self._deleted.add(name)
            return
        self._check_partition(name, position, state)
        kept = state.cursors.get(self._subscription)
        if kept is not None and kept < target:
            self._admin.move_subscription(name, self._subscription, target)

    def _check_partition(self, name: str, begun: Position | None, state: PartitionState) -> None:
        kept = state.cursors.get(self._subscription)
        if kept is None:
            if begun is not None:
                why = (
                    f"the subscription '{self._subscription}', which kept the unread messages, no "
                    "longer exists: the topic was deleted and created again, or the subscription "
                    "was deleted or expired"
                )
                self._lost(name, begun, None, why)
            self._seen.pop(name, None)  # the log may be a new one
            self._settled.pop(name, None)
            self._admin.create_subscription(name, self._subscription, START)
            return
        after = max(begun or START, self._settled.get(name, START))
        dropped = self._dropped(name, after, kept, state.log)
        if dropped and self._losses:  # a run that ended before its next batch may have recorded it
            after = self._losses.recorded(self._subscription, name, after)
            dropped = max(dropped, after)
        if dropped is None or dropped == after:
            self._settled |= {name: dropped} if dropped else {}
            return
        if not self._only_hidden(name, after, dropped, state):
            why = (
                "the broker has dropped them (message TTL, a backlog quota that evicts, or the "
                f"subscription '{self._subscription}' was cleared or moved)"
            )
            self._lost(name, after, dropped, why)
        self._settled[name] = dropped

    def _dropped(
        self, name: str, after: Position, kept: Position, log: PartitionLog
    ) -> Position | None:
        """The last entry that the broker no longer keeps for us; None if we have read it.

        The broker itself moves a subscription that has read a whole ledger to the beginning of the
        next ledger, `<ledger>:-1`. The entries of the ledger distinguish such a move from a loss.
        If the ledger is deleted, its entries at the last look are used. At the first look of a run,
        only the policies are known: if none drops messages, the ledger was deleted because it was
        read.
        """
        if kept <= after:
            return None
        if count := log.entries_behind(after) - log.entries_behind(kept):
            return log.advance(after, count)
        if kept.entry >= 0:
            return kept
        if any(ledger.id == after.ledger for ledger in log.ledgers):
            return None
        seen = self._seen.get(name)
        if seen is not None:
            is_lost = seen.entries_behind(after) > seen.entries_behind(kept)
        else:
            is_lost = after != START and self._admin.drops_unread(topic_of(name))
        return kept if is_lost else None

    def _only_hidden(
        self, name: str, after: Position, dropped: Position, state: PartitionState
    ) -> bool:
        """Whether only transaction markers and messages of aborted transactions were dropped."""
        if all(ledger.id != after.ledger for ledger in state.log.ledgers):
            return False  # some of the entries are deleted
        while after < dropped:
            after = state.log.advance(after, 1)
            entry = self._admin.entry(name, after)
            if entry is None or entry.is_pending or not entry.is_hidden:
                return False
        return True

    def _lost(self, name: str, after: Position, up_to: Position | None, why: str) -> None:
        if self._losses:
            self._losses.record(self._subscription, name, (after, up_to), why)
            return
        what = (
            f"{name}: messages after {after}{f' up to {up_to}' if up_to else ''} were not read "
            f"and may be lost, because {why}."
        )
        remedy = (
            "Switch off message TTL and quotas that evict. To continue without these messages and "
            "record the loss in a table, set failOnDataLoss=false and dataLossTable. To start "
            "over, use a new checkpoint and a new subscription."
        )
        raise DataLossError(what, remedy)
