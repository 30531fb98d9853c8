"""Generates repeatable data of a shop from a seed, with the statistics of a real shop.

The files users.csv, items.csv and orders.csv have the format that `lakehouse publish` reads. Times
are in UTC, and a cell is empty if a value is absent. Prices are products of floating-point factors,
as in the real shop, so values such as 13.750000000000002 occur. A few order lines refer to users
and items that no changelog contains.
"""

import csv
import datetime as dt
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shop.vocabulary import (
    ADJECTIVES,
    CATEGORIES,
    FIRST_NAMES,
    LAST_NAMES,
    MAIL_HOSTS,
    MODIFIERS,
)

USERS = 117_178
DELETED_USERS = USERS - 114_290
MERGED_USERS = 6_408
ORDER_LINES = 47_402
LINES_OF_UNKNOWN_USERS = 37
LINES_OF_UNKNOWN_ITEMS = 23
UNPAID_SHARE = 0.004
SAME_CATEGORY_SHARE = 0.7
SKEW = 3  # the first 1 % of users have 0.01 ** (1 / SKEW) of the lines, about a fifth

PLAIN_SHARE = 0.35  # items without a modifier

OPENED = dt.datetime(2013, 2, 22)  # noqa: DTZ001 - all times are UTC, written without an offset
CLOSED = dt.datetime(2018, 1, 1)  # noqa: DTZ001
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
DAY = 86_400


@dataclass(frozen=True)
class Counts:
    """Number of rows written per file."""

    users: int
    items: int
    orders: int


USER_COLUMNS = [
    "id",
    "created_at",
    "deleted_at",
    "email_address",
    "first_name",
    "last_name",
    "merged_at",
    "parent_user_id",
]
ITEM_COLUMNS = [
    "id",
    "created_at",
    "created_at_epoch",
    "adjective",
    "category",
    "modifier",
    "name",
    "price",
]
ORDER_COLUMNS = [
    "invoice_id",
    "line_item_id",
    "user_id",
    "item_id",
    "item_name",
    "item_category",
    "price",
    "created_at",
    "paid_at",
]


@dataclass
class User:
    """An account. Times are in seconds since the shop opened."""

    id: int
    created: int
    first_name: str
    last_name: str
    mail: str
    deleted: int | None = None
    merged: int | None = None
    parent_id: int | None = None

    def row(self) -> list[object]:
        """The row in users.csv."""
        names = [self.mail, self.first_name, self.last_name]
        times = [_time(self.created), _time(self.deleted), *names, _time(self.merged)]
        return [self.id, *times, "" if self.parent_id is None else self.parent_id]


@dataclass(frozen=True)
class Item:
    """An item. The time is in seconds since the shop opened."""

    id: int
    created: int
    adjective: str
    category: str
    modifier: str
    price: float

    @property
    def name(self) -> str:
        """The item's words, in the order that the shop uses."""
        return " ".join(word for word in (self.adjective, self.category, self.modifier) if word)

    def row(self) -> list[object]:
        """The row in items.csv."""
        created = OPENED + dt.timedelta(seconds=self.created)
        epoch = (created - EPOCH) // dt.timedelta(milliseconds=1)
        words = [self.adjective, self.category, self.modifier, self.name]
        return [self.id, str(created), epoch, *words, repr(self.price)]


def generate_shop(directory: Path, scale: float = 1.0, seed: int = 1) -> Counts:
    """Write users.csv, items.csv and orders.csv. The same arguments give the same bytes.

    Args:
        directory: created if it does not exist. Files with these names are replaced.
        scale: 1.0 gives 117,178 users, 2,198 items and 47,402 order lines. Users and lines are
            proportional to it. Items are too, but only between 0.01 and 1.0.
        seed: seed of the random numbers.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, no secret
    directory.mkdir(parents=True, exist_ok=True)
    users = _users(rng, max(round(USERS * scale), 1), scale)
    items = _items(rng, min(max(scale, 0.01), 1.0))
    lines = _orders(rng, users, items, scale)
    _write(directory / "users.csv", USER_COLUMNS, (user.row() for user in users))
    _write(directory / "items.csv", ITEM_COLUMNS, (item.row() for item in items))
    _write(directory / "orders.csv", ORDER_COLUMNS, lines)
    return Counts(len(users), len(items), len(lines))


def _ids(rng: random.Random, count: int) -> list[int]:
    """Unique ids in random order. One of them is 0."""
    ids = [0, *rng.sample(range(1, 2 * count + 1), count - 1)]
    rng.shuffle(ids)
    return ids


def _users(rng: random.Random, count: int, scale: float) -> list[User]:
    span = int((CLOSED - OPENED).total_seconds()) - 30 * DAY
    created = sorted(rng.randrange(span) for _ in range(count))
    users = []
    for user_id, second in zip(_ids(rng, count), created, strict=True):
        first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
        mail = f"{first}_{last}{user_id}@{rng.choice(MAIL_HOSTS)}".replace("'", "")
        users.append(User(user_id, second, first, last, mail))
    merged = rng.sample(range(1, count), min(round(MERGED_USERS * scale), count - 1))
    for number in merged:
        user = users[number]  # its parent is older, so no chain of parents is a cycle
        user.parent_id = users[rng.randrange(number)].id
        user.merged = user.created + rng.randrange(1, 30 * DAY)
    alive = [user for user in users if user.parent_id is None]
    for user in rng.sample(alive, min(round(DELETED_USERS * scale), len(alive))):
        user.deleted = user.created + rng.randrange(1, 365 * DAY)
    return users


def _items(rng: random.Random, share: float) -> list[Item]:
    counts = {name: max(round(count * share), 1) for name, (count, _) in CATEGORIES.items()}
    ids = iter(_ids(rng, sum(counts.values())))
    items = []
    for category, count in counts.items():
        for _ in range(count):
            adjective = rng.choice(list(ADJECTIVES))
            plain = rng.random() < PLAIN_SHARE
            modifier = "" if plain else rng.choice(list(MODIFIERS)[1:])
            price = CATEGORIES[category][1] * MODIFIERS[modifier] * ADJECTIVES[adjective]
            created = rng.randrange(365 * DAY)
            items.append(Item(next(ids), created, adjective, category, modifier, price))
    return items


def _orders(
    rng: random.Random, users: list[User], items: list[Item], scale: float
) -> list[list[object]]:
    by_category: dict[str, list[Item]] = {}
    for item in items:
        by_category.setdefault(item.category, []).append(item)
    customers = rng.sample(users, len(users))
    sizes = _invoice_sizes(rng, max(round(ORDER_LINES * scale), 1))
    line_ids = iter(_ids(rng, sum(sizes)))
    opened, closed = 366 * DAY, int((CLOSED - OPENED).total_seconds())
    lines: list[list[object]] = []
    singles = []
    for invoice_id, size in zip(_ids(rng, len(sizes)), sizes, strict=True):
        user = customers[int(len(customers) * rng.random() ** SKEW)]
        created = rng.randrange(max(user.created, opened), closed)
        paid = None if rng.random() < UNPAID_SHARE else created + round(rng.gauss(DAY / 2, DAY))
        if size == 1:
            singles.append(len(lines))
        for item in _basket(rng, items, by_category, size):
            ids = [invoice_id, next(line_ids), user.id, item.id]
            what = [item.name, item.category, repr(item.price).removesuffix(".0")]
            lines.append([*ids, *what, _time(created), _time(paid)])
    _lose_references(rng, lines, singles, scale)
    return lines


def _invoice_sizes(rng: random.Random, lines: int) -> list[int]:
    sizes: list[int] = []
    while lines:
        sizes.append(min(rng.randint(1, 4), lines))
        lines -= sizes[-1]
    return sizes


def _basket(
    rng: random.Random, items: list[Item], by_category: dict[str, list[Item]], size: int
) -> list[Item]:
    """Different items, mostly of one category. Items early in a list are more popular."""

    def pick(shelf: list[Item]) -> Item:
        return shelf[int(len(shelf) * rng.random() ** 2)]

    basket = [pick(items)]
    while len(basket) < min(size, len(items)):
        same = rng.random() < SAME_CATEGORY_SHARE
        item = pick(by_category[basket[0].category] if same else items)
        if item not in basket:
            basket.append(item)
        elif same and len(by_category[item.category]) <= size:
            basket.append(next(other for other in items if other not in basket))
    return basket


def _lose_references(
    rng: random.Random, lines: list[list[object]], singles: list[int], scale: float
) -> None:
    """Let some lines refer to users and items that do not exist.

    Only invoices of a single line lose their user, so that an invoice still has one user.
    """
    unknown = 10_000_000
    lost = rng.sample(singles, min(round(LINES_OF_UNKNOWN_USERS * scale), len(singles)))
    for number in lost:
        lines[number][2] = unknown + number
    others = [number for number in range(len(lines)) if number not in set(lost)]
    for number in rng.sample(others, min(round(LINES_OF_UNKNOWN_ITEMS * scale), len(others))):
        lines[number][3] = unknown + number


def _time(second: int | None) -> str:
    return "" if second is None else str(OPENED + dt.timedelta(seconds=second))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
