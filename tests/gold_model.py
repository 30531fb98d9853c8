"""The right answer for gold, in plain Python, from order lines joined with their user and item."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
OrderLine = tuple[int, int]

COUPON_THRESHOLD = 500
SIMILAR_ITEMS = 5


def reward_ledger(lines: Mapping[OrderLine, Row]) -> dict[OrderLine, tuple[int, str]]:
    """Points and reason of each order line: whole units of the price of paid lines."""
    judged = {}
    for key, line in lines.items():
        if line["paid_at"] is None:
            judged[key] = (0, "not paid")
        elif line["user"] is None:
            judged[key] = (0, "user unknown")
        elif line["price"] <= 0:
            judged[key] = (0, "free item")
        else:
            judged[key] = (int(line["price"]), "earned")
    return judged


def reward_points(lines: Mapping[OrderLine, Row], users: Iterable[Row]) -> dict[int, int]:
    """Points of each known user who has ordered; a deleted account has none."""
    totals: Counter[int] = Counter()
    for key, (points, _) in reward_ledger(lines).items():
        totals[lines[key]["user_id"]] += points
    return {
        user["id"]: 0 if user["deleted_at"] is not None else totals[user["id"]]
        for user in users
        if user["id"] in totals
    }


def coupons(points: Mapping[int, int], users: Iterable[Row]) -> dict[int, tuple[bool, str, int]]:
    """Whether a user gets a coupon, why, and how many points are missing."""
    deleted = {user["id"] for user in users if user["deleted_at"] is not None}
    judged = {}
    for user, count in points.items():
        enough = count >= COUPON_THRESHOLD
        reason = "enough points" if enough else "not enough points"
        if user in deleted:
            enough, reason = False, "account deleted"
        judged[user] = (enough, reason, max(COUPON_THRESHOLD - count, 0))
    return judged


def similar_items(
    lines: Iterable[Row], items: Iterable[Row]
) -> dict[int, list[tuple[int, int, int]]]:
    """Per item up to five others: (item, invoices with both, shared traits), best first."""
    known = {item["id"]: item for item in items}
    baskets: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        baskets[line["invoice_id"]].add(line["item_id"])
    together = Counter((a, b) for basket in baskets.values() for a in basket for b in basket)
    found = {}
    for one in known.values():
        rated = []
        for other in known.values():
            traits = 0
            if one["category"] == other["category"]:
                traits = 1 + sum(one[n] == other[n] for n in ("modifier", "adjective"))
            count = together[one["id"], other["id"]]
            if one["id"] != other["id"] and (count or traits):
                rated.append((-count, -traits, other["id"]))
        if rated:
            best = sorted(rated)[:SIMILAR_ITEMS]
            found[one["id"]] = [(item, -count, -traits) for count, traits, item in best]
    return found
