"""What partial updates make of a row, in plain Python: a register for each field."""

from collections.abc import Iterable
from typing import NamedTuple


class PartialChange(NamedTuple):
    """order: (sequence, position). fields: what the message has; None if it deletes."""

    order: tuple[int, int]
    fields: dict[str, str | None] | None


class Field(NamedTuple):
    order: tuple[int, int] | None = None
    value: str | None = None

    def is_later_than(self, other: "Field") -> bool:
        return self.order is not None and (other.order is None or self.order > other.order)


def fold(registers: dict[str, Field], changes: Iterable[PartialChange]) -> dict[str, Field]:
    found = {name: Field() for name in ("_upserted", "_deleted", "name", "town")} | registers
    for change in changes:
        if change.fields is None:
            set_now: dict[str, str | None] = {"_deleted": None}
        else:
            set_now = {"_upserted": None, **change.fields}
        for name, value in set_now.items():
            if Field(change.order).is_later_than(found[name]):
                found[name] = Field(change.order, value)
    return found
