"""The expected gold tables in plain Python, from order lines and the current users and items."""

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

Row = Mapping[str, Any]
OrderLine = tuple[int, int]
Entry = tuple[int, int, str]

MULTIPLIERS = {"gadget": Decimal(2), "gizmo": Decimal("1.5")}
COUPON_THRESHOLD = 500
COUPON_DAYS = 90
PLUS, PREMIUM = 500, 2000
SIMILAR_ITEMS = 5
LARGEST_BASKET = 100
NEIGHBOURS = 20
POPULAR_ITEMS = 20
RECOMMENDATIONS = 5


def account(user_id: int, users: Mapping[int, Row]) -> int:
    """Return the user at the end of the merge chain, or the user itself within a cycle."""
    seen, at = [user_id], user_id
    while at in users and users[at]["parent_user_id"] is not None:
        at = users[at]["parent_user_id"]
        if at in seen:
            return user_id
        seen.append(at)
    return at


def reward_ledger(
    lines: Mapping[OrderLine, Row], users: Mapping[int, Row]
) -> dict[Entry, tuple[int, int, str]]:
    """Return account, points and reason of each ledger entry."""
    entries: dict[Entry, tuple[int, int, str]] = {}
    for key, line in lines.items():
        owner = account(line["user_id"], users)
        rate = MULTIPLIERS.get(line["item_category"], Decimal(1))
        points = int((abs(line["price"]) * rate).to_integral_value(ROUND_FLOOR))
        if line["paid_at"] is None:
            entry, points, reason = "none", 0, "not paid"
        elif line["user_id"] not in users:
            entry, points, reason = "none", 0, "user unknown"
        elif line["price"] == 0:
            entry, points, reason = "none", 0, "free item"
        elif line["price"] < 0:
            entry, points, reason = "refunded", -points, "refund"
        else:
            entry, reason = "earned", "paid"
        entries[(*key, entry)] = (owner, points, reason)
        if points and owner in users and users[owner]["deleted_at"] is not None:
            entries[(*key, "reversed")] = (owner, -points, "account deleted")
    return entries


def reward_points(
    lines: Mapping[OrderLine, Row], users: Mapping[int, Row]
) -> dict[int, tuple[int, str]]:
    """Return points and tier of each account that has an order by a known user."""
    totals: Counter[int] = Counter()
    for owner, points, reason in reward_ledger(lines, users).values():
        if reason != "user unknown":
            totals[owner] += points
    # A line of an unknown user creates no account; an unpaid line of a known user does.
    known = {account(line["user_id"], users) for line in lines.values() if line["user_id"] in users}
    return {owner: (totals[owner], _tier(owner, totals[owner], users)) for owner in known}


def _tier(owner: int, points: int, users: Mapping[int, Row]) -> str:
    if owner in users and users[owner]["deleted_at"] is not None:
        return "closed"
    return "premium" if points >= PREMIUM else "plus" if points >= PLUS else "basic"


def coupons(
    lines: Mapping[OrderLine, Row], users: Mapping[int, Row]
) -> dict[int, tuple[bool, str, int, dt.datetime | None]]:
    """Return by account: coupon or not, the reason, the missing points and the expiry time."""
    moments: dict[int, Counter[dt.datetime]] = defaultdict(Counter)
    for (invoice, line, entry), (owner, points, _) in reward_ledger(lines, users).items():
        sent = lines[invoice, line]
        at = users[owner]["deleted_at"] if entry == "reversed" else sent["paid_at"]
        moments[owner][at or sent["created_at"]] += points
    judged = {}
    for owner, (points, tier) in reward_points(lines, users).items():
        if tier == "closed":
            judged[owner] = (False, "account deleted", COUPON_THRESHOLD - points, None)
            continue
        balance, since = 0, None
        for at in sorted(moments[owner]):
            before, balance = balance, balance + moments[owner][at]
            if before < COUPON_THRESHOLD <= balance:
                since = at
        enough = points >= COUPON_THRESHOLD
        until = since + dt.timedelta(days=COUPON_DAYS) if enough and since else None
        reason = "enough points" if enough else "not enough points"
        judged[owner] = (enough, reason, max(COUPON_THRESHOLD - points, 0), until)
    return judged


def thank_you_mails(
    lines: Mapping[OrderLine, Row], users: Mapping[int, Row]
) -> dict[int, tuple[int, str, Decimal, int]]:
    """Return the mail due for each paid invoice.

    Returns:
        By invoice: account, email address or its hash, amount and number of lines.
    """
    invoices: dict[int, list[Row]] = defaultdict(list)
    for (invoice, _), line in lines.items():
        invoices[invoice].append(line)
    mails = {}
    for invoice, parts in invoices.items():
        owner = users.get(min(account(line["user_id"], users) for line in parts))
        if owner is None or owner["deleted_at"] is not None:
            continue
        address = (owner["email_address"] or "").strip()
        if all(line["paid_at"] for line in parts) and re.fullmatch(
            r"[^@ ]+@[^@ ]+[.][^@ ]+|[0-9a-f]{64}", address
        ):
            amount = sum((line["price"] for line in parts), Decimal(0))
            mails[invoice] = (owner["id"], address, amount, len(parts))
    return mails


def baskets(lines: Iterable[Row]) -> dict[int, set[int]]:
    """Return the items of each invoice, without refunds and without very large baskets."""
    found: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        if line["price"] >= 0:
            found[line["invoice_id"]].add(line["item_id"])
    return {invoice: items for invoice, items in found.items() if len(items) <= LARGEST_BASKET}


def item_affinity(
    lines: Iterable[Row], items: Mapping[int, Row]
) -> dict[tuple[int, int], tuple[int, float, float, float]]:
    """Return by ordered pair of known items: shared invoices, support, confidence and lift."""
    known = [basket & items.keys() for basket in baskets(lines).values()]
    count_all = sum(bool(basket) for basket in known)
    single = Counter(item for basket in known for item in basket)
    together = Counter((a, b) for basket in known for a in basket for b in basket if a != b)
    return {
        (a, b): (n, n / count_all, n / single[a], n * count_all / (single[a] * single[b]))
        for (a, b), n in together.items()
    }


def _neighbours(
    lines: Iterable[Row], items: Mapping[int, Row]
) -> dict[int, list[tuple[int, int, int, float]]]:
    """Return all neighbours of each item: (item, shared invoices, shared traits, confidence)."""
    affinity = item_affinity(lines, items)
    found = {}
    for one in items.values():
        rated = []
        for other in items.values():
            traits = 0
            if one["category"] is not None and one["category"] == other["category"]:
                traits = 1 + sum(one[n] == other[n] for n in ("modifier", "adjective"))
            count, _, confidence, _ = affinity.get((one["id"], other["id"]), (0, 0.0, 0.0, 0.0))
            if one["id"] != other["id"] and (count or traits):
                rated.append((-count, -traits, other["id"], confidence))
        found[one["id"]] = [(item, -count, -traits, c) for count, traits, item, c in sorted(rated)]
    return found


def similar_items(
    lines: Iterable[Row], items: Iterable[Row]
) -> dict[int, list[tuple[int, int, int]]]:
    """Return up to five similar items: (item, shared invoices, shared traits), best first."""
    near = _neighbours(lines, {item["id"]: item for item in items})
    return {
        item: [(other, count, traits) for other, count, traits, _ in others[:SIMILAR_ITEMS]]
        for item, others in near.items()
        if others
    }


def user_recommendations(
    lines: Mapping[OrderLine, Row], users: Mapping[int, Row], items: Mapping[int, Row]
) -> dict[int, list[tuple[int, float, str]]]:
    """Return up to five items an account does not own: (item, score, reason), best first."""
    near = _neighbours(lines.values(), items)
    counts = Counter(item for basket in baskets(lines.values()).values() for item in basket)
    sold = sorted((-count, item) for item, count in counts.items() if item in items)
    popular = {item: place for place, (_, item) in enumerate(sold[:POPULAR_ITEMS])}
    owned: dict[int, set[int]] = defaultdict(set)
    named = set()
    for line in lines.values():
        if line["price"] >= 0:
            owner = account(line["user_id"], users)
            owned[owner].add(line["item_id"])
            if line["user_id"] in users:
                named.add(owner)
    found = {}
    for owner in named:
        if owner in users and users[owner]["deleted_at"] is not None:
            continue
        scores, traits = defaultdict(Decimal), Counter[int]()
        for item in owned[owner]:
            for other, _, shared, confidence in near.get(item, [])[:NEIGHBOURS]:
                scores[other] += Decimal(repr(confidence)).quantize(Decimal("1e-12"), ROUND_HALF_UP)
                traits[other] += shared
        rated = []
        for item in (scores.keys() | popular.keys()) - owned[owner]:
            score, shared = scores[item], traits[item]
            reason = "bought together" if score else "alike" if shared else "popular"
            place = popular[item] if reason == "popular" else 0
            rated.append((-score, -shared, place, item, reason))
        best = sorted(rated)[:RECOMMENDATIONS]
        if best:
            found[owner] = [(item, float(-score), reason) for score, _, _, item, reason in best]
    return found


def sales_by_day(
    lines: Iterable[Row],
) -> dict[tuple[dt.date, str], tuple[int, int, Decimal]]:
    """Return by payment day and category: lines and invoices without refunds, and the revenue."""
    groups: dict[tuple[dt.date, str], list[Row]] = defaultdict(list)
    for line in lines:
        if line["paid_at"] is not None:
            groups[line["paid_at"].date(), line["item_category"]].append(line)
    return {key: (*_sold(parts), _revenue(parts)) for key, parts in groups.items()}


def _sold(lines: Iterable[Row]) -> tuple[int, int]:
    sold = [line for line in lines if line["price"] >= 0]
    return len(sold), len({line["invoice_id"] for line in sold})


def _revenue(lines: Iterable[Row]) -> Decimal:
    return sum((line["price"] for line in lines), Decimal(0))


Customer = tuple[int, dt.datetime, dt.datetime, int, Decimal]


def customers(lines: Iterable[Row], users: Mapping[int, Row]) -> dict[int, Customer]:
    """Return by account: number of users, first and last payment, invoices and revenue."""
    orders: dict[int, list[Row]] = defaultdict(list)
    for line in lines:
        if line["paid_at"] is not None:
            orders[account(line["user_id"], users)].append(line)
    found = {}
    members = Counter(account(user, users) for user in users)
    for owner, parts in orders.items():
        times = [line["paid_at"] for line in parts if line["price"] >= 0]
        if times:
            _, invoices = _sold(parts)
            found[owner] = (members[owner], min(times), max(times), invoices, _revenue(parts))
    return found


def scores(
    found: Mapping[int, Customer], users: Mapping[int, Row]
) -> dict[int, tuple[int, int, int] | tuple[None, None, None]]:
    """Return recency, frequency and monetary score of each customer, None for deleted accounts."""
    alive = {
        owner: (last, invoices, revenue)
        for owner, (_, _, last, invoices, revenue) in found.items()
        if owner not in users or users[owner]["deleted_at"] is None
    }
    ranked = [
        sorted(alive, key=lambda owner: (alive[owner][place], alive[owner][0], owner))
        for place in range(3)
    ]
    fifths = [_fifths(owners) for owners in ranked]
    scored = {owner: (fifths[0][owner], fifths[1][owner], fifths[2][owner]) for owner in alive}
    return {owner: scored.get(owner, (None, None, None)) for owner in found}


def _fifths(owners: list[int]) -> dict[int, int]:
    """Number the fifths of a list from 1; if they cannot be equal, the first ones are larger."""
    small, larger = divmod(len(owners), 5)
    sizes = [small + (number < larger) for number in range(5)]
    numbers = [number for number, size in enumerate(sizes, start=1) for _ in range(size)]
    return dict(zip(owners, numbers, strict=True))


def segment(recency: int | None, frequency: int | None, monetary: int | None) -> str:
    """Return the name of the segment for three scores."""
    if recency is None or frequency is None or monetary is None:
        return "closed"
    if recency < 3:
        return "at risk" if frequency > 2 or monetary > 3 else "lapsed"
    if frequency < 3:
        return "recent"
    return "champion" if min(recency, frequency) > 3 else "loyal"


def repeat_purchases(
    lines: Iterable[Row], users: Mapping[int, Row]
) -> dict[dt.date, tuple[int, int, Decimal, Decimal, Decimal]]:
    """Return first and repeat purchases by month.

    Returns:
        By month: first purchases, repeat purchases, the revenue of each, and the revenue of
        invoices that are refunds only.
    """
    invoices: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for line in lines:
        if line["paid_at"] is not None:
            invoices[account(line["user_id"], users), line["invoice_id"]].append(line)
    counts: dict[dt.date, Counter[str]] = defaultdict(Counter)
    revenue: dict[dt.date, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    bought: dict[int, list[tuple[dt.datetime, int]]] = defaultdict(list)
    for (owner, invoice), parts in invoices.items():
        times = [line["paid_at"] for line in parts if line["price"] >= 0]
        if times:
            bought[owner].append((min(times), invoice))
        else:
            at = min(line["paid_at"] for line in parts)
            revenue[_month(at)]["refund"] += _revenue(parts)
    for owner, purchases in bought.items():
        for at, invoice in purchases:
            kind = "first" if (at, invoice) == min(purchases) else "repeat"
            counts[_month(at)][kind] += 1
            revenue[_month(at)][kind] += _revenue(invoices[owner, invoice])
    return {
        month: (
            counts[month]["first"],
            counts[month]["repeat"],
            *(sums[kind] for kind in ("first", "repeat", "refund")),
        )
        for month, sums in revenue.items()
    }


def _month(at: dt.datetime) -> dt.date:
    return at.date().replace(day=1)


def conversion(
    clicks: Iterable[tuple[str, dt.datetime]],
) -> dict[dt.date, tuple[int, int, int, Decimal | None, Decimal | None]]:
    """Return by day: clicks of each kind, then carts per view and purchases per cart."""
    days: dict[dt.date, Counter[str]] = defaultdict(Counter)
    for kind, at in clicks:
        if kind in ("view", "cart", "purchase"):
            days[at.date()][kind] += 1
    return {
        day: (
            *(counts[kind] for kind in ("view", "cart", "purchase")),
            _rate(counts["cart"], counts["view"]),
            _rate(counts["purchase"], counts["cart"]),
        )
        for day, counts in days.items()
    }


def _rate(count: int, of: int) -> Decimal | None:
    return (Decimal(count) / of).quantize(Decimal("0.0001"), ROUND_HALF_UP) if of else None
