"""The expected history of versions that are made from several messages, by instant."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Change(NamedTuple):
    """A message of a changelog.

    key: None for a message about all keys: it truncates, or ends a snapshot.
    order: (sequence, position). at: the time of the change.
    fields: the fields that it has; None if it deletes its key.
    """

    key: str | None
    order: tuple[int, int]
    at: int
    fields: Row | None


class Valid(NamedTuple):
    """A version. end: None if it is valid for ever. row: None for a deleted key."""

    begin: int
    end: int | None
    row: Any


def versions(
    changes: Iterable[Change],
    instants: Sequence[int],
    row_at: Callable[[list[Change], int], Any],
    is_same: Callable[[Any, Any], bool],
) -> list[Valid]:
    """Return the versions of one key: periods of instants whose rows are the same, by definition.

    Args:
        changes: the messages about the key.
        instants: all instants, one after the other, at which something can change.
        row_at: what is known of the key at an instant; None if there is no row.
        is_same: whether the rows at two successive instants belong to one version.
    """
    mine = list(changes)
    found: list[list[Any]] = []
    before: Any = None
    for instant in instants:
        now = row_at(mine, instant)
        if now is not None:
            if before is not None and is_same(before, now):
                found[-1][1:] = [None, now]
            else:
                found.append([instant, None, now])
        if before is not None and (now is None or found[-1][0] == instant):
            closed = found[-1] if now is None else found[-2]
            closed[1] = instant
        before = now
    return [Valid(*each) for each in found]


def last_change(
    changes: list[Change], instant: int, *, of_snapshots: bool = False
) -> Change | None:
    """Return the message that is valid at an instant: the last one by time and then by order.

    It is not valid if a later truncation happened by then. The end of a snapshot is before its
    rows, which have the same sequence.
    """

    def is_ended(change: Change, by: int) -> bool:
        ends = (each for each in changes if each.key is None and each.at <= by)
        if of_snapshots:
            return any(each.order[0] > change.order[0] for each in ends)
        return any(each.order > change.order for each in ends)

    found = None
    for change in sorted(changes, key=lambda each: (each.at, each.order)):
        if change.key is not None and change.at <= instant and not is_ended(change, change.at):
            found = change
    return None if found is None or is_ended(found, instant) else found


def folded(changes: list[Change], instant: int) -> tuple[list[Change], Row | None] | None:
    """Return the messages up to an instant, and the row that they make; None if there are none."""
    found: Row | None = None
    until = sorted(
        (each for each in changes if each.at <= instant), key=lambda each: (each.at, each.order)
    )
    for change in until:
        found = None if change.fields is None else {**(found or {}), **change.fields}
    return (until, found) if until else None


def of_snapshots(changes: Iterable[Change]) -> dict[str, Change]:
    """Return the rows of the table: those of the last snapshot that has ended, and later ones."""
    messages = list(changes)
    last = max((each.order[0] for each in messages if each.key is None), default=-1)
    found: dict[str, Change] = {}
    for change in sorted(messages, key=lambda each: each.order):
        if change.key is not None and change.order[0] >= last:
            found[change.key] = change
    return found
