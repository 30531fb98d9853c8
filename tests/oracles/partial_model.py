"""The expected result of partial updates in plain Python, with last-writer-wins fields."""

from collections.abc import Iterable
from typing import NamedTuple

FIELDS = ("name", "town", "source_db")


class PartialChange(NamedTuple):
    """A partial update.

    order: (sequence, position). fields: the fields in the message, None if it is a delete.
    """

    order: tuple[int, int]
    fields: dict[str, str | None] | None


class Field(NamedTuple):
    order: tuple[int, int] | None = None
    value: str | None = None

    def is_later_than(self, other: "Field") -> bool:
        return self.order is not None and (other.order is None or self.order > other.order)


Registers = dict[str, Field]


def fold(registers: Registers, changes: Iterable[PartialChange]) -> Registers:
    found = {name: Field() for name in ("_upserted", "_deleted", *FIELDS)} | registers
    for change in changes:
        if change.fields is None:
            set_now: dict[str, str | None] = {"_deleted": None}
        else:
            set_now = {"_upserted": None, **change.fields}
        for name, value in set_now.items():
            if Field(change.order).is_later_than(found[name]):
                found[name] = Field(change.order, value)
    return found


Keyed = tuple[int | None, PartialChange]  # a message; the key is None for a truncation


def current(history: Iterable[Keyed]) -> dict[int, Registers]:
    """Return the rows by definition: only changes after the last truncation count."""
    messages = list(history)
    last = max((change.order for key, change in messages if key is None), default=(-1, -1))
    found: dict[int, Registers] = {}
    for key, change in messages:
        if key is not None and change.order > last:
            found[key] = fold(found.get(key, {}), [change])
    return found


class Folded:
    """The rows as silver maintains them.

    A truncation clears older fields, and changes older than the last truncation are ignored.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Registers] = {}
        self._last = Field((-1, -1))

    def batch(self, messages: Iterable[Keyed]) -> None:
        changes = list(messages)
        last = max((Field(change.order) for key, change in changes if key is None), default=Field())
        if last.is_later_than(self._last):
            self._last = last
        for known, row in list(self.rows.items()):
            left = {
                n: each if each.is_later_than(self._last) else Field() for n, each in row.items()
            }
            self.rows[known] = left
            if all(each.order is None for each in left.values()):
                del self.rows[known]
        for key, change in changes:
            if key is not None and Field(change.order).is_later_than(self._last):
                self.rows[key] = fold(self.rows.get(key, {}), [change])
