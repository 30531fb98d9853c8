"""Tests sales, customers and clicks, built by real dbt, against plain Python."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gold_model
from deltalake import DeltaTable
from messages import order, user
from personal import protection
from shop_lake import ShopLake

from gold.build import build_gold
from gold.catalog import register
from gold.dbt.results import BuildResult
from lake.settings.settings import SHOP_TOPICS
from lake.tables.lake import Lake
from lake.topics.topic_file import load_topics
from lakehouse.operate.publish import create_topics

CLICKS = Path(__file__).resolve().parents[2] / "docs" / "clicks.toml"
MIDNIGHT = dt.datetime(2018, 3, 1, tzinfo=dt.timezone.utc)
DAY, TICK = dt.timedelta(days=1), dt.timedelta(milliseconds=1)
Row = Mapping[str, Any]


def test_sales_customers_and_clicks_follow_changes(gold: BuildResult, shop_lake: ShopLake) -> None:
    own = protection(shop_lake.settings.home_dir, CLICKS)
    settings = shop_lake.settings.model_copy(update=own)
    lake = ShopLake(shop_lake.spark, settings, load_topics(settings.topics))
    create_topics(Lake(settings, lake.topics))
    gone = publish_changes(lake)
    lake.send("clicks", [(key, click(key, kind, at)) for key, kind, at in CLICKED])
    lake.catch_up()
    register(lake.spark, Lake(settings, lake.topics))
    build_gold(Lake(settings))
    for name in ("sales_by_day", "int_account_totals", "repeat_purchases"):
        built = DeltaTable(settings.table_path("gold_build", name))
        assert built.history(1)[0]["operation"] == "MERGE", name
    assert gone not in assert_sales_and_customers_are_right(lake)

    sent = {key: (kind, at) for key, kind, at in CLICKED}
    columns = ("count_views", "count_carts", "count_purchases", "view_to_cart", "cart_to_purchase")
    found = {row["day"]: tuple(row[name] for name in columns) for row in lake.mart("conversion")}
    assert found == gold_model.conversion(sent.values())
    assert [found[day.date()][4] for day in (MIDNIGHT, MIDNIGHT + DAY)] == [0, None]
    part = build_gold(Lake(settings), select="conversion")
    rules = [node for node in part.tests if node.kind == "unit_test"]
    assert [(node.name, node.status) for node in rules] == [("conversion", "pass")]


def assert_sales_and_customers_are_right(lake: ShopLake) -> dict[int, Row]:
    """Check sales and customers, and return the customers by account."""
    lines, users = list(lake.enriched().values()), lake.current("users")
    assert {
        (r["day"], r["category"]): (r["count_lines"], r["count_invoices"], r["revenue"])
        for r in lake.mart("sales_by_day")
    } == gold_model.sales_by_day(lines)
    customers = {row["account_id"]: row for row in lake.mart("customers")}
    totals = ("count_users", "first_paid_at", "last_paid_at", "count_invoices", "revenue")
    right = gold_model.customers(lines, users)
    assert {key: tuple(row[name] for name in totals) for key, row in customers.items()} == right
    names = ("recency_score", "frequency_score", "monetary_score")
    scores = {key: tuple(row[name] for name in names) for key, row in customers.items()}
    assert scores == gold_model.scores(right, users)
    for key, row in customers.items():
        assert row["segment"] == gold_model.segment(*scores[key])
        assert row["is_repeat"] == (row["count_invoices"] > 1)
    assert {row["segment"] for row in customers.values()} == SEGMENTS
    columns = (
        *("count_first_purchases", "count_repeat_purchases"),
        *("first_revenue", "repeat_revenue", "refunds"),
    )
    assert {
        row["month"]: tuple(row[name] for name in columns) for row in lake.mart("repeat_purchases")
    } == gold_model.repeat_purchases(lines, users)
    return customers


SEGMENTS = {"champion", "loyal", "recent", "at risk", "lapsed", "closed"}


def publish_changes(lake: ShopLake) -> int:
    """Publish every kind of change to a customer, each for a different one.

    Returns:
        The account that is no longer a customer.
    """
    users, bought = lake.current("users"), dict[int, list[Row]]()
    waiting = None
    for line in lake.enriched().values():
        buyer = users.get(line["user_id"])
        if buyer is None:
            waiting = line["user_id"]
        elif line["paid_at"] and not buyer["deleted_at"] and buyer["parent_user_id"] is None:
            bought.setdefault(line["user_id"], []).append(line)
    keeps, merged, deleted, unknown, unpaid, refunded, earlier = sorted(bought)[:7]
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


def click(key: str, kind: str, at: dt.datetime) -> bytes:
    message = {"eventId": key, "userId": -1, "itemId": 1, "kind": kind, "occurredAt": ms(at)}
    return json.dumps(message).encode()


CLICKED = [
    ("a", "view", MIDNIGHT),
    ("b", "view", MIDNIGHT + DAY - TICK),
    ("c", "view", MIDNIGHT),
    ("d", "view", MIDNIGHT),
    ("e", "cart", MIDNIGHT),
    ("d", "cart", MIDNIGHT),
    ("f", "purchase", MIDNIGHT + DAY),
    ("g", "scroll", MIDNIGHT - TICK),
]


def test_the_topic_file_with_clicks_includes_the_shops_topics() -> None:
    shop = load_topics(SHOP_TOPICS).topics
    clicks = load_topics(CLICKS).topics
    assert {name: topic for name, topic in clicks.items() if name != "clicks"} == shop
