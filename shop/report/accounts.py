"""Customers and their rewards. Accounts are counted but never named, because pages are shared."""

from collections.abc import Iterable

from lakehouse.report.blocks import Block, bar_chart, table
from lakehouse.report.snapshot import Snapshot

TIERS = ("premium", "plus", "basic", "closed")


def segments(lake: Snapshot) -> Iterable[Block]:
    """Accounts with a paid order, by segment, with the highest revenue first."""
    rows = lake.rows(
        """
        select
            segment, count(*) as accounts, sum(revenue) as revenue, sum(revenue) / count(*) as each,
            avg(cast(is_repeat as double)) as again
        from "gold.customers" group by segment order by revenue desc, segment
        """,
        "gold.customers",
    )
    yield bar_chart("accounts-by-segment", "Accounts by segment", rows, "segment", "accounts")
    yield bar_chart("revenue-by-segment", "Revenue by segment", rows, "segment", "revenue")
    yield table(
        "Segments",
        {
            "segment": "text",
            "accounts": "number",
            "revenue": "number",
            "per account": "money",
            "bought again": "percent",
        },
        rows,
        "Segments show how recently, how often and for how much an account has bought.",
        wide=True,
    )


def tiers(lake: Snapshot) -> Iterable[Block]:
    """Accounts and points by tier, with the highest tier first."""
    rows = lake.rows(
        """
        select
            tier, count(*) as accounts, count(*) * 1.0 / sum(count(*)) over () as share,
            sum(points) as points, sum(points) * 1.0 / count(*) as each
        from "gold.reward_points" group by tier order by tier
        """,
        "gold.reward_points",
    )
    rows.sort(key=lambda row: TIERS.index(row["tier"]) if row["tier"] in TIERS else len(TIERS))
    yield bar_chart("accounts-by-tier", "Accounts by tier", rows, "tier", "accounts")
    yield bar_chart("points-by-tier", "Points by tier", rows, "tier", "points")
    yield table(
        "Tiers",
        {
            "tier": "text",
            "accounts": "number",
            "share": "percent",
            "points": "number",
            "per account": "number",
        },
        rows,
        wide=True,
    )


def coupons(lake: Snapshot) -> Iterable[Block]:
    """How many accounts get a coupon, and the reasons why the others do not."""
    rows = lake.rows(
        """
        select
            reason, bool_or(is_eligible) as coupon, count(*) as accounts,
            count(*) * 1.0 / sum(count(*)) over () as share
        from "gold.coupon_eligibility" group by reason order by 3 desc, 1
        """,
        "gold.coupon_eligibility",
    )
    yield bar_chart("coupons-by-reason", "Coupons: accounts by reason", rows, "reason", "accounts")
    yield table(
        "Coupons",
        {"reason": "text", "coupon": "flag", "accounts": "number", "share": "percent"},
        rows,
    )
