"""The retention guard: a durable subscription per query, that is never read from.

It tells the broker what must be kept: it stands at the last committed position. And it tells us
what was not kept: if it is gone, or ahead of the checkpoint, messages may be lost.
"""

from bronze.admin import PulsarAdmin
from bronze.errors import DataLossError
from bronze.offsets import START, Offset, Position


class RetentionGuard:
    """Guards the topic partitions of one query."""

    def __init__(self, admin: PulsarAdmin, subscription: str) -> None:
        self._admin = admin
        self._subscription = subscription
        self._guarded: set[str] = set()

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
                self._refuse(name, f"the checkpoint stands at {begun[name]}, but it was deleted")
            self._check_partition(name, begun.get(name))
            self._guarded.add(name)

    def move(self, committed: Offset) -> None:
        """Let the broker drop what is on disk now."""
        for name, position in committed.items():
            self._admin.move_subscription(name, self._subscription, position)

    def _check_partition(self, name: str, begun: Position | None) -> None:
        kept = self._admin.subscription(name, self._subscription)
        if begun is None:
            if kept is None:
                self._admin.create_subscription(name, self._subscription, START)
        elif kept is None:
            self._refuse(
                name,
                f"the checkpoint stands at {begun}, but the subscription '{self._subscription}' "
                "that kept the unread messages is gone: the topic was deleted and made anew, or "
                "the subscription was removed or expired",
            )
        elif kept > begun:
            self._refuse(
                name,
                f"messages behind {begun} were not landed, but the broker has dropped them up to "
                f"{kept} (message TTL, or somebody moved the subscription '{self._subscription}')",
            )

    def _refuse(self, name: str, what: str) -> None:
        message = (
            f"{name}: {what}. Messages may be lost. Switch message TTL off for the namespace; to "
            "land the topic as it is now, move the bronze table and its checkpoint away, or "
            "`lakehouse reset`."
        )
        raise DataLossError(message)
