"""The retention guard: a durable subscription per query, that is never read from.

It tells the broker what must be kept: it stands at the last committed position. And it tells us
what was not kept: if it is gone, or ahead of the checkpoint, messages may be lost.
"""

from bronze.admin import PulsarAdmin, TopicNotFoundError
from bronze.errors import DataLossError
from bronze.losses import LossTable
from bronze.offsets import START, Offset, Position


class RetentionGuard:
    """Guards the topic partitions of one query.

    losses: the audit table, if losses are accepted and recorded there; None to stop.
    """

    def __init__(
        self, admin: PulsarAdmin, subscription: str, losses: LossTable | None = None
    ) -> None:
        self._admin = admin
        self._subscription = subscription
        self._losses = losses
        self._guarded: set[str] = set()
        self._moved: Offset = {}

    def begin(self, partitions: list[str], begun: Offset) -> None:
        """For a new checkpoint: let the broker keep what is behind where the query begins."""
        for name in partitions:
            if self._admin.subscription(name, self._subscription) is None:
                position = begun.get(name, START)
                self._admin.create_subscription(name, self._subscription, position)

    def check(self, partitions: list[str], begun: Offset) -> None:
        """Before a partition is read for the first time in this run: is all of it still there?

        Raises:
            DataLossError: it may be not; names the partition, and what to do.
        """
        for name in sorted({*partitions, *begun} - self._guarded):
            if name not in partitions:
                self._lost(name, (begun[name], None), "the topic was deleted")
            else:
                self._check_partition(name, begun.get(name))
            self._guarded.add(name)

    def move(self, committed: Offset) -> None:
        """Let the broker drop what is on disk now.

        Raises:
            DataLossError: the subscription has gone since the query started.
        """
        for name, position in committed.items():
            if self._moved.get(name) != position:
                try:
                    self._admin.move_subscription(name, self._subscription, position)
                except TopicNotFoundError:
                    self._check_partition(name, position)
                self._moved[name] = position

    def _check_partition(self, name: str, begun: Position | None) -> None:
        kept = self._admin.subscription(name, self._subscription)
        if kept is None and begun is not None:
            self._lost(
                name,
                (begun, None),
                f"the subscription '{self._subscription}' that kept the unread messages is gone: "
                "the topic was deleted and made anew, or the subscription was removed or expired",
            )
        elif kept is not None and begun is not None and kept > begun:
            self._lost(
                name,
                (begun, kept),
                "the broker has dropped them (message TTL, or somebody moved the subscription "
                f"'{self._subscription}')",
            )
        if kept is None:
            self._admin.create_subscription(name, self._subscription, START)

    def _lost(self, name: str, lost: tuple[Position, Position | None], why: str) -> None:
        if self._losses:
            self._losses.record(self._subscription, name, lost, why)
            return
        behind, up_to = lost
        message = (
            f"{name}: messages behind {behind}{f' up to {up_to}' if up_to else ''} were not read "
            f"and may be lost, as {why}. Switch message TTL off for the namespace. To go on "
            "without them, and have that recorded in a table, set failOnDataLoss=false "
            "(LAKEHOUSE_ACCEPT_DATA_LOSS=true); to start over, `lakehouse reset`."
        )
        raise DataLossError(message)
