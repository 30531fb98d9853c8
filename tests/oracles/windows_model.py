"""The expected rows of the shop's time-based order views, in plain Python."""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any

Line = Mapping[str, Any]
Rows = set[tuple[Any, ...]]
Group = dict[Any, list[Line]]

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def start_of(at: dt.datetime, size: dt.timedelta) -> dt.datetime:
    return at - (at - EPOCH) % size


def grouped(lines: Collection[Line], by: Callable[[Line], Any]) -> Group:
    found: Group = defaultdict(list)
    for line in lines:
        found[by(line)].append(line)
    return found


def revenue(lines: Collection[Line]) -> Decimal:
    return sum((line["price"] for line in lines), Decimal(0))


def sales_per_hour(lines: Collection[Line]) -> Rows:
    return {
        (start, start + HOUR, len(g), len({x["invoice_id"] for x in g}), revenue(g))
        for start, g in grouped(lines, lambda x: start_of(x["created_at"], HOUR)).items()
    }


def sales_last_day(lines: Collection[Line]) -> Rows:
    windows: Group = defaultdict(list)
    for line in lines:
        last = start_of(line["created_at"], 6 * HOUR)
        for back in range(4):
            windows[last - back * 6 * HOUR].append(line)
    return {(start, start + DAY, len(g), revenue(g)) for start, g in windows.items()}


def sales_so_far(lines: Collection[Line]) -> Rows:
    found = set()
    for hour in {start_of(x["created_at"], HOUR) for x in lines}:
        day = start_of(hour, DAY)
        so_far = [x for x in lines if day <= x["created_at"] < hour + HOUR]
        found.add((day, hour + HOUR, len(so_far), revenue(so_far)))
    return found


def user_sessions(lines: Collection[Line]) -> Rows:
    found, gap = set(), dt.timedelta(minutes=30)
    for user, mine in grouped(lines, lambda x: x["user_id"]).items():
        session: list[Line] = []
        for line in sorted(mine, key=lambda x: x["created_at"]):
            if session and line["created_at"] > session[-1]["created_at"] + gap:
                found.add(_session(user, session, gap))
                session = []
            session.append(line)
        found.add(_session(user, session, gap))
    return found


def _session(user: int, lines: list[Line], gap: dt.timedelta) -> tuple[Any, ...]:
    begin, end = lines[0]["created_at"], lines[-1]["created_at"] + gap
    return user, begin, end, len(lines), revenue(lines)


def top_items_per_day(lines: Collection[Line]) -> Rows:
    found = set()
    for day, mine in grouped(lines, lambda x: start_of(x["created_at"], DAY)).items():
        items = grouped(mine, lambda x: x["item_id"])
        best = sorted((-revenue(g), item) for item, g in items.items())[:3]
        found |= {(day, item, -minus, rank) for rank, (minus, item) in enumerate(best, start=1)}
    return found


def first_purchases(lines: Collection[Line]) -> Rows:
    found = set()
    for (user, item), mine in grouped(lines, lambda x: (x["user_id"], x["item_id"])).items():
        first = min(mine, key=lambda x: (x["created_at"], x["invoice_id"], x["line_item_id"]))
        found.add((user, item, first["invoice_id"], first["line_item_id"], first["created_at"]))
    return found


VIEWS = {
    each.__name__: each
    for each in (
        sales_per_hour,
        sales_last_day,
        sales_so_far,
        user_sessions,
        top_items_per_day,
        first_purchases,
    )
}
