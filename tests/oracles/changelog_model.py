"""The expected state of a changelog in plain Python, by definition and batch by batch."""

from collections.abc import Iterable
from typing import NamedTuple

Key = tuple[str, int]


class Change(NamedTuple):
    """A message of the changelog; `price` is None for a delete."""

    key: Key
    sequence: tuple[str, int]
    position: int
    price: int | None

    @property
    def order(self) -> tuple[tuple[str, int], int]:
        return self.sequence, self.position


def current(history: Iterable[Change]) -> dict[Key, Change]:
    """Return the state by definition: the latest change of each key, unless it is a delete."""
    latest: dict[Key, Change] = {}
    for change in sorted(history, key=lambda change: change.order):
        latest[change.key] = change
    return {key: change for key, change in latest.items() if change.price is not None}


class Merged:
    """The state by guarded MERGEs, as in silver.

    A batch writes the latest change of each key if it is later than the stored one.
    """

    def __init__(self) -> None:
        self._rows: dict[Key, Change] = {}

    def batch(self, changes: Iterable[Change]) -> None:
        latest: dict[Key, Change] = {}
        for change in changes:
            latest[change.key] = max(latest.get(change.key, change), change, key=lambda c: c.order)
        for key, change in latest.items():
            if key not in self._rows or change.order > self._rows[key].order:
                self._rows[key] = change

    def current(self) -> dict[Key, Change]:
        return {key: row for key, row in self._rows.items() if row.price is not None}
