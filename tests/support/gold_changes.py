"""Changes to the sources between two builds of gold."""

import csv
import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from messages import order, user
from planted_shop import write_planted_shop, write_rows
from shop_lake import ShopLake

from gold.build import prepare_build
from gold.dbt.process import target_path
from gold.dbt.results import BuildResult
from gold.kept.build_after import LastComputed
from gold.lock import alone
from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake

MIDNIGHT = dt.datetime(2018, 3, 1, tzinfo=dt.timezone.utc)
DAY, TICK = dt.timedelta(days=1), dt.timedelta(milliseconds=1)
Row = Mapping[str, Any]


class Waited(NamedTuple):
    """Two builds after changes of rewards: one in which models waited, and one when they are due.

    Each has its result and the rows of the marts after it. before: the rows before the changes.
    """

    before: dict[str, list[str]]
    waiting: tuple[BuildResult, dict[str, list[str]]]
    due: tuple[BuildResult, dict[str, list[str]]]


class Changes(NamedTuple):
    """The result of changes and of the build that follows them.

    before: the rows of the marts before the changes. fates: the changed items and users by what
    happened to them.
    """

    before: dict[str, list[str]]
    fates: dict[str, int]


def build_waiting(settings: LakeSettings, age: dt.timedelta) -> BuildResult:
    """Build gold as continuous gold does, as if all models with `build_after` had some age."""
    folder, at = target_path(settings), (dt.datetime.now(dt.timezone.utc) - age).isoformat()
    last = LastComputed.read(folder)
    assert last is not None
    aged = {name: replace(each, at=at) for name, each in last.models.items()}
    replace(last, models=aged).write(folder)
    with alone(settings), prepare_build(Lake(settings), may_wait=True) as build:
        return build.run()


def change_rewards(lake: ShopLake, shop_files: Path, folder: Path) -> None:
    """Publish changes that affect rewards.

    They are a late user, a merged user, a deleted user, an order line that is no longer paid, a
    new line and a refund.
    """
    with (shop_files / "orders.csv").open() as lines:
        orders = list(csv.DictReader(lines))
    with (shop_files / "users.csv").open() as rows:
        files = {row["id"]: row for row in csv.DictReader(rows)}
    known = lake.current("users")
    waiting = next(line for line in orders if int(line["user_id"]) not in known)
    paid = {}
    for line in orders:
        user = known.get(int(line["user_id"]))
        if line["paid_at"] and user and not user["deleted_at"] and not user["parent_user_id"]:
            paid.setdefault(line["user_id"], line)
    keeps, merged, deleted = list(paid)[:3]
    now = "2018-01-01 00:00:00"
    users = [
        {**files[keeps], "id": waiting["user_id"], "deleted_at": ""},
        {**files[merged], "merged_at": now, "parent_user_id": keeps},
        {**files[deleted], "deleted_at": now},
    ]
    unpaid = {**paid[keeps], "paid_at": ""}
    new = {**unpaid, "line_item_id": "99999999", "price": "12.345", "paid_at": now}
    refund = {**paid[merged], "line_item_id": "99999998", "price": "-2.50"}
    write_rows(folder / "users.csv", users)
    write_rows(folder / "orders.csv", [unpaid, new, refund])
    lake.fill(folder)


def change_recommendations(lake: ShopLake, shop_files: Path, folder: Path) -> dict[str, int]:
    """Publish changes that affect recommendations.

    They are a planted shop beside the generated one; items that arrive late, move to another
    category, are deleted or are returned; a merged user and a deleted user.

    Returns:
        Ids of items and users by what happened to them.
    """
    write_planted_shop(folder, seed=5)
    lines, items = lake.enriched(), lake.current("items")
    sold = [item for item, _ in Counter(line["item_id"] for line in lines.values()).most_common()]
    deleted, moved, returned = [item for item in sold if item in items][:3]
    late = next(item for item in sold if item not in items)
    other = next(item for item in items.values() if item["category"] != items[moved]["category"])
    buyers = Counter(line["user_id"] for line in lines.values())
    users = lake.current("users")
    merged, closed, into = [
        user
        for user, _ in buyers.most_common()
        if user in users and not users[user]["deleted_at"] and not users[user]["parent_user_id"]
    ][:3]
    now = "2018-01-02 00:00:00"
    append(shop_files, folder, "items", "id", moved, {"category": other["category"]})
    append(shop_files, folder, "items", "id", moved, {"id": late})
    append(shop_files, folder, "users", "id", merged, {"merged_at": now, "parent_user_id": into})
    append(shop_files, folder, "users", "id", closed, {"deleted_at": now})
    append(shop_files, folder, "orders", "item_id", returned, {"price": "-1"})
    append(shop_files, folder, "orders", "item_id", sold[5], {"item_id": moved})
    lake.send("items", [(deleted, b"")])
    lake.fill(folder)
    return {"deleted": deleted, "late": late, "merged": merged, "closed": closed}


def append(files: Path, to: Path, name: str, column: str, value: int, new: dict[str, Any]) -> None:
    """Append a copy of a generated row, with new values, to the file of the same name in `to`."""
    with (files / f"{name}.csv").open() as rows:
        row = next(row for row in csv.DictReader(rows) if row[column] == str(value))
    with (to / f"{name}.csv").open() as there:
        header = next(csv.reader(there))
    with (to / f"{name}.csv").open("a", newline="") as file:
        csv.DictWriter(file, header, extrasaction="ignore").writerow(row | new)


def change_sales(lake: ShopLake) -> int:
    """Publish every kind of change to a customer, each for a different one.

    Returns:
        The account that is no longer a customer.
    """
    users, bought = lake.current("users"), dict[int, list[Row]]()
    parents = {each["parent_user_id"] for each in users.values()}
    waiting = None
    for line in lake.enriched().values():
        buyer = users.get(line["user_id"])
        if buyer is None:
            waiting = line["user_id"]
        elif line["paid_at"] and not buyer["deleted_at"] and buyer["parent_user_id"] is None:
            bought.setdefault(line["user_id"], []).append(line)
    alone = sorted(bought.keys() - parents)
    keeps, merged, deleted, unknown, unpaid, refunded, earlier = alone[:7]
    moved = bought[keeps][0]
    first = min(line["paid_at"] for line in bought[earlier])
    orders = [
        resent(moved, itemCategory="moved", paidAt=ms(MIDNIGHT)),
        *(resent(line, paidAt=-1) for line in bought[unpaid]),
        # A refund on an earlier paid invoice, and one on its own invoice, the only line of its day.
        resent(bought[refunded][0], lineItemId=9_000_001, price=-0.5, paidAt=ms(MIDNIGHT - TICK)),
        (9_000_002, order(9_000_002, 1, refunded, 0, price=-7, paidAt=ms(MIDNIGHT + 40 * DAY))),
        (9_000_003, order(9_000_003, 1, earlier, 0, price=0, paidAt=ms(first - DAY))),
        (9_000_007, order(9_000_007, 1, earlier, 0, itemCategory=None, paidAt=ms(MIDNIGHT))),
        # Of an unknown user, paid at the same instant: the lower invoice counts as the first.
        (9_000_005, order(9_000_005, 1, 9_000_000, 0, paidAt=ms(MIDNIGHT))),
        (9_000_004, order(9_000_004, 1, 9_000_000, 0, paidAt=ms(MIDNIGHT))),
    ]
    changed = [
        (merged, user(merged, parentUserId=keeps, mergedAt=ms(MIDNIGHT))),
        (deleted, user(deleted, deletedAt=ms(MIDNIGHT))),
        (unknown, b""),
        (9_000_006, user(9_000_006, parentUserId=merged, mergedAt=ms(MIDNIGHT))),
    ]
    if waiting is not None:
        changed.append((waiting, user(waiting, parentUserId=keeps, mergedAt=ms(MIDNIGHT))))
    lake.send("users", changed)
    lake.send("orders", orders)
    lake.catch_up()
    return unpaid


def resent(line: Row, **fields: Any) -> tuple[int, bytes]:
    """Return an order line as it was sent, with some fields replaced."""
    names = {"itemName": "item_name", "itemCategory": "item_category"}
    sent = {name: line[column] for name, column in names.items()}
    sent |= {"price": float(line["price"]), "createdAt": ms(line["created_at"])}
    ids = [line[name] for name in ("invoice_id", "line_item_id", "user_id", "item_id")]
    return ids[0], order(*ids, **{**sent, "paidAt": ms(line["paid_at"]), **fields})


def ms(at: dt.datetime) -> int:
    return round(at.timestamp() * 1000)
