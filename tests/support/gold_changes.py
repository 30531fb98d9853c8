"""Changes to the sources between two builds of gold."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from planted_shop import write_planted_shop, write_rows
from shop_lake import ShopLake


class Changes(NamedTuple):
    """The result of changes and of the build that follows them.

    before: the rows of the marts before the changes. fates: the changed items and users by what
    happened to them.
    """

    before: dict[str, list[str]]
    fates: dict[str, int]


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
