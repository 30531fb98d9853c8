"""What the shop adds to the lakehouse's commands. `shop/topics.toml` names this module.

The functions are called by `lakehouse` as `lakehouse/application.py` declares them. Each imports
what it needs, so that `lakehouse generate` loads neither charts nor dbt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lake.tables.lake import Lake
    from lakehouse.report.blocks import Section, Tile
    from lakehouse.report.snapshot import Snapshot

QUERIES = {
    "Accounts with the most points": (
        "select p.account_id, u.first_name, u.last_name, p.points, p.tier "
        "from gold.reward_points p join silver.users u on p.account_id = u.id "
        "order by p.points desc, p.account_id limit 5"
    ),
    "Coupons": (
        "select reason, count(*) as accounts from gold.coupon_eligibility "
        "group by reason order by 2"
    ),
    "Items to show beside the first item": (
        "select i.name as item, s.rank, o.name as similar_item, s.count_invoices, s.reason "
        "from gold.similar_items s join silver.items i on s.item_id = i.id "
        "join silver.items o on s.similar_item_id = o.id "
        "where s.item_id = (select min(item_id) from gold.similar_items) order by s.rank"
    ),
}


def generate(folder: Path, scale: float, seed: int) -> Mapping[str, int]:
    """Write users.csv, items.csv and orders.csv."""
    from shop.generate import generate_shop

    counts = generate_shop(folder, scale, seed)
    return {"users": counts.users, "items": counts.items, "order lines": counts.orders}


def tiles(lake: Snapshot) -> Sequence[Tile]:
    """The shop's key figures."""
    from shop.report.tiles import key_figures

    return key_figures(lake)


def sections(lake: Snapshot) -> Sequence[Section]:
    """Sales, customers, rewards and recommendations."""
    from lakehouse.report.blocks import section
    from shop.report import accounts, recommendations, sales

    return [
        section(
            lake,
            "sales",
            "Sales",
            sales.revenue_over_time,
            sales.orders_over_time,
            sales.categories,
        ),
        section(lake, "customers", "Customers", accounts.segments),
        section(lake, "rewards", "Rewards", accounts.tiers, accounts.coupons),
        section(
            lake,
            "recommendations",
            "Recommendations",
            recommendations.similar_items,
            recommendations.best_customers,
            recommendations.recommended_items,
            recommendations.affinities,
        ),
    ]


def evaluate(lake: Lake) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Compare the recommendations with popular and with random items.

    The last invoice of each account is held out, and the models of gold recommend ten items from
    the others. Hit rate: share of the accounts that bought one of them. MRR: mean of 1 / its rank.
    """
    from shop.evaluate import AT, evaluate_recommendations

    columns = ("recommender", "accounts", f"hit rate at {AT}", f"MRR at {AT}")
    return columns, [
        (each.recommender, each.accounts, round(each.hit_rate, 4), round(each.reciprocal_rank, 4))
        for each in evaluate_recommendations(lake)
    ]
