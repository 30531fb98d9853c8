"""Interval joins in plain Python: every pair of events is compared."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Event = Mapping[str, Any]


def joined(
    left: Iterable[Event],
    right: Iterable[Event],
    *,
    fits: Callable[[Event, Event], bool],
    at: Callable[[Event], dt.datetime],
    key: Callable[[Event], tuple[Any, ...]],
    before: dt.timedelta,
    after: dt.timedelta,
    match: str,
) -> list[tuple[Event, Event | None]]:
    """Return each event of the left with each of its partners, or with None if it has none.

    With the match `first` or `last`, only that partner counts, by time and then by key.
    """
    found: list[tuple[Event, Event | None]] = []
    others = list(right)
    for event in left:
        partners = [
            other
            for other in others
            if fits(event, other) and -before <= at(other) - at(event) <= after
        ]
        partners.sort(key=lambda other: (at(other), key(other)))
        if match == "first":
            partners = partners[:1]
        elif match == "last":
            partners = partners[-1:]
        found += [(event, other) for other in partners or [None]]
    return found
