"""Orders and revenue over time."""

from collections.abc import Iterable
from typing import Any

from lakehouse.report.blocks import Block, Figure, table
from lakehouse.report.charts import REST, SERIES, Unit, over_time
from lakehouse.report.snapshot import NotShownError, Snapshot

DAYS_BY_DAY, DAYS_BY_MONTH = 92, 15 * 366  # longer spans are shown by month or by year


def orders_over_time(lake: Snapshot) -> Iterable[Block]:
    """All order lines, paid or not, by their creation time."""
    orders = "silver.enriched_orders"
    span = 'select min(created_at) as since, max(created_at) as until from "silver.enriched_orders"'
    unit = _unit(lake.row(span, orders))
    rows = lake.rows(
        f"select date_trunc('{unit}', created_at) as start, count(*) as value "  # noqa: S608 - ours
        'from "silver.enriched_orders" where created_at is not null group by 1 order by 1',
        orders,
    )
    yield Figure(
        "orders-over-time",
        f"Order lines by {unit}",
        over_time(rows, unit, "order lines"),
        note="All ordered lines, paid or not.",
    )


def revenue_over_time(lake: Snapshot) -> Iterable[Block]:
    """Revenue over time, with the largest categories as separate series."""
    sales = "gold.sales_by_day"
    span = 'select min("day") as since, max("day") as until from "gold.sales_by_day"'
    unit = _unit(lake.row(span, sales))
    rows = lake.rows(
        f"""
        with ranked as (
            select category, row_number() over (order by sum(revenue) desc, category) as place
            from "gold.sales_by_day" group by category
        )
        select
            date_trunc('{unit}', sales."day") as start,
            case
                when ranked.place > {len(SERIES)} then 'all others'
                else coalesce(sales.category, 'no category')
            end as category,
            cast(least(ranked.place, {len(SERIES) + 1}) as int) as place,
            sum(sales.revenue) as value
        from "gold.sales_by_day" as sales
        inner join ranked on sales.category is not distinct from ranked.category
        group by 1, 2, 3 order by 1, 3
        """,  # noqa: S608 - the unit and the number of series are ours
        sales,
    )
    places = {row["place"]: row["category"] for row in rows}
    legend = [(places[place], (*SERIES, REST)[place - 1]) for place in sorted(places)]
    yield Figure(
        "revenue-over-time",
        f"Revenue by category and {unit}",
        over_time(rows, unit, "revenue", legend),
        legend=legend,
        wide=True,
    )


def categories(lake: Snapshot) -> Iterable[Block]:
    """Revenue by category, with the highest first."""
    rows = lake.rows(
        """
        select
            coalesce(category, 'no category') as category, sum(count_lines), sum(revenue),
            sum(revenue) * 1.0 / sum(sum(revenue)) over () as share
        from "gold.sales_by_day" group by category order by 3 desc, 1 limit 20
        """,
        "gold.sales_by_day",
    )
    yield table(
        "Revenue by category",
        {"category": "text", "order lines": "number", "revenue": "number", "share": "percent"},
        rows,
    )


def _unit(span: dict[str, Any]) -> Unit:
    if span["since"] is None:
        message = "No orders yet. Send some with `lakehouse publish`."
        raise NotShownError(message)
    days = (span["until"] - span["since"]).days
    return "day" if days <= DAYS_BY_DAY else "month" if days <= DAYS_BY_MONTH else "year"
