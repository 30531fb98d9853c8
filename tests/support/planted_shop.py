"""A generated shop with a known answer to which items are bought together."""

import csv
import datetime as dt
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIRST_ID = 50_000_000
PAIRS = 30
ACCOUNTS = 300
FAITH = 0.9  # share of buyers of one item of a pair who also buy the other
OPENED = dt.datetime(2017, 1, 1, tzinfo=dt.timezone.utc)


def write_planted_shop(folder: Path, seed: int) -> None:
    """Write users.csv, items.csv and orders.csv, with ids that no other file uses.

    Items come in pairs that share no trait. An account buys a pair, then one item of another pair,
    and last, in most cases, the second item of that pair. All its other purchases are random.
    """
    rng = random.Random(seed)
    items = list(range(FIRST_ID, FIRST_ID + 2 * PAIRS))
    write_rows(folder / "users.csv", [_user(FIRST_ID + number) for number in range(ACCOUNTS)])
    write_rows(folder / "items.csv", [_item(item) for item in items])
    invoices: list[tuple[int, int, list[int]]] = []
    for account in range(FIRST_ID, FIRST_ID + ACCOUNTS):
        whole, half = rng.sample(range(PAIRS), 2)
        pair = [items[2 * whole], items[2 * whole + 1]]
        one, other = rng.sample([items[2 * half], items[2 * half + 1]], 2)
        last = other if rng.random() < FAITH else rng.choice(items)
        if rng.random() > FAITH:
            pair[1] = rng.choice(items)
        baskets = [[*pair, rng.choice(items)], [one, rng.choice(items)], [last]]
        invoices += [(account, day, basket) for day, basket in enumerate(baskets)]
    lines = [
        _line(FIRST_ID + number, place, account, item, OPENED + dt.timedelta(days=day))
        for number, (account, day, basket) in enumerate(invoices)
        for place, item in enumerate(basket)
    ]
    write_rows(folder / "orders.csv", lines)


def _user(user_id: int) -> dict[str, Any]:
    absent = dict.fromkeys(("deleted_at", "merged_at", "parent_user_id"), "")
    name = {"first_name": "A", "last_name": "B", "email_address": f"a{user_id}@example.com"}
    return {"id": user_id, "created_at": _time(OPENED), **name, **absent}


def _item(item_id: int) -> dict[str, Any]:
    category = f"planted {item_id % 2} {item_id % 7}"
    traits = {"adjective": "", "category": category, "modifier": "", "name": category}
    return {"id": item_id, "created_at": _time(OPENED), **traits, "price": "1.0"}


def _line(invoice: int, line: int, user: int, item: int, at: dt.datetime) -> dict[str, Any]:
    ids = {"invoice_id": invoice, "line_item_id": line, "user_id": user, "item_id": item}
    what = {"item_name": "", "item_category": "", "price": "1.0"}
    return {**ids, **what, "created_at": _time(at), "paid_at": _time(at)}


def _time(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file that `lakehouse publish` accepts."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
