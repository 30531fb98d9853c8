"""Tests what docs/kept-models.md says of published examples."""

import re
from pathlib import Path

import pytest

from lake.kept.planner import make_plan
from lake.kept.query import Unkept, read_query

DOCS = Path(__file__).resolve().parents[3] / "docs" / "kept-models.md"
TABLES = {
    "app.events": {"event_id": "bigint", "user_id": "bigint", "event_at": "timestamp"},
    "app.items": {"order_item_id": "bigint", "order_id": "bigint", "product_id": "string"},
    "app.orders": {"order_id": "bigint", "customer_id": "bigint", "ordered_at": "timestamp"},
    "app.products": {"product_id": "string", "price": "decimal(9,2)", "is_food": "boolean"},
    "app.supplies": {"supply_id": "string", "product_id": "string", "cost": "decimal(9,2)"},
    "app.customers": {"customer_id": "bigint", "name": "string"},
    "app.transactions": {"id": "bigint", "account_id": "bigint", "amount": "decimal(9,2)"},
    "app.returns": {"order_id": "bigint", "returned_at": "timestamp"},
}
EXAMPLES = {
    "new events only": (
        "select *, date_trunc('hour', event_at) as event_hour from app.events",
        ["event_id"],
    ),
    "active users of a day": (
        "select date_trunc('day', event_at) as date_day, count(distinct user_id) as active_users "
        "from app.events group by 1",
        ["date_day"],
    ),
    "order items": (
        "with costs as (select product_id, sum(cost) as cost from app.supplies group by 1) "
        "select i.*, o.ordered_at, p.price, costs.cost from app.items as i "
        "left join app.orders as o on i.order_id = o.order_id "
        "left join app.products as p on i.product_id = p.product_id "
        "left join costs on i.product_id = costs.product_id",
        ["order_item_id"],
    ),
    "orders": (
        "with sums as (select i.order_id, sum(p.price) as subtotal, count_if(p.is_food) as foods "
        "from app.items as i join app.products as p on i.product_id = p.product_id group by 1), "
        "joined as (select o.*, s.subtotal, s.foods > 0 as is_food_order from app.orders as o "
        "join sums as s on o.order_id = s.order_id) "
        "select *, row_number() over (partition by customer_id order by ordered_at, order_id) "
        "as order_number from joined",
        ["order_id"],
    ),
    "customers": (
        "with sums as (select customer_id, count(*) as orders, min(ordered_at) as first_at "
        "from app.orders where customer_id is not null group by 1) "
        "select c.*, s.orders, s.first_at, if(s.orders > 1, 'returning', 'new') as kind "
        "from app.customers as c left join sums as s on c.customer_id = s.customer_id",
        ["customer_id"],
    ),
    "revenue of each account": (
        "select account_id, count(id) as n, sum(amount) as revenue from app.transactions "
        "group by account_id",
        ["account_id"],
    ),
    "a rank over all rows": (
        "select account_id, rank() over (order by sum(amount) desc) as place "
        "from app.transactions group by account_id",
        ["account_id"],
    ),
    "WHERE EXISTS": (
        "select * from app.orders as o "
        "where exists (select 1 from app.returns as r where r.order_id = o.order_id)",
        ["order_id"],
    ),
    "totals of a whole table": ("select sum(amount) as total from app.transactions", ["total"]),
    "by a full join": (
        "select coalesce(o.order_id, r.order_id) as order_id, r.returned_at from app.orders as o "
        "full join app.returns as r on o.order_id = r.order_id",
        ["order_id"],
    ),
}


def told(name: str) -> str:
    """The cell of the kept model in the row of an example."""
    (row,) = re.findall(rf"^\| .*{re.escape(name)}.*$", DOCS.read_text(), re.MULTILINE)[:1]
    return str(row.split(" | ")[1]).replace("`", "")


def planned(name: str) -> str:
    """What the planner makes of an example."""
    text, key = EXAMPLES[name]
    try:
        return f"kept by {', '.join(make_plan(read_query(text, TABLES), key).scope)}"
    except Unkept as error:
        return f"whole: {error}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_docs_say_how_an_example_is_kept(name: str) -> None:
    of = {"orders": "jaffle-shop: orders", "customers": "jaffle-shop: customers"}
    assert told(of.get(name, name)).split(" by ")[0] in planned(name)
    if told(of.get(name, name)).startswith("kept"):
        assert told(of.get(name, name)) == planned(name)
