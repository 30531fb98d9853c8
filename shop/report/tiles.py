"""The key figures of the shop in the head of the report."""

from collections.abc import Sequence

from lakehouse.report.blocks import Form, Tile, figure
from lakehouse.report.snapshot import Snapshot

HEAD: tuple[tuple[str, Form, str, str], ...] = (
    (
        "Revenue",
        "number",
        "gold.sales_by_day",
        'select sum(revenue) as value from "gold.sales_by_day"',
    ),
    (
        "Paid invoices",
        "number",
        "gold.thank_you_mails",
        'select count(*) as value from "gold.thank_you_mails"',
    ),
    (
        "Customers",
        "number",
        "gold.customers",
        'select count(*) as value from "gold.customers"',
    ),
    (
        "Repeat customers",
        "percent",
        "gold.customers",
        'select avg(cast(is_repeat as double)) as value from "gold.customers"',
    ),
    (
        "Reward points",
        "number",
        "gold.reward_points",
        'select sum(points) as value from "gold.reward_points"',
    ),
    (
        "Usable coupons",
        "number",
        "gold.coupon_eligibility",
        'select count(*) as value from "gold.coupon_eligibility" where is_eligible',
    ),
    (
        "Incomplete order lines",
        "number",
        "silver.enriched_orders",
        'select count(*) as value from "silver.enriched_orders" where missing_lookups > 0',
    ),
)


def key_figures(lake: Snapshot) -> Sequence[Tile]:
    """The shop's figures. A value is None if its table does not exist yet."""
    return [figure(lake, *each) for each in HEAD]
