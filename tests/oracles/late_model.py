"""Late events in plain Python: each event is compared with all that were published before it."""

import datetime as dt
from collections.abc import Iterable
from typing import NamedTuple


class Published(NamedTuple):
    """An event: its key, its times, and the place of its message in the topic."""

    key: int
    at: dt.datetime | None
    published: dt.datetime
    place: tuple[int, ...]


def late(
    events: Iterable[Published], lateness: dt.timedelta
) -> dict[int, tuple[dt.datetime, dt.timedelta]]:
    """Return the watermark of each late event, and by how much the event is before it, by key."""
    found = {}
    in_order = sorted(events, key=lambda each: (each.published, each.place))
    for n, event in enumerate(in_order):
        seen = [min(each.at, each.published) for each in in_order[:n] if each.at is not None]
        if event.at is not None and seen and max(seen) - event.at > lateness:
            found[event.key] = max(seen), max(seen) - event.at
    return found
