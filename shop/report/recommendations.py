"""Recommendations. An item is shown by its current name and its id, because many share a name."""

from collections.abc import Iterable

from lakehouse.report.blocks import Block, table
from lakehouse.report.snapshot import Snapshot

ITEMS = "silver.items_state"


def similar_items(lake: Snapshot) -> Iterable[Block]:
    """The similar items of the ten best-selling items."""
    rows = lake.rows(
        """
        with sold as (
            select item_id, count(*) as count_lines from "silver.enriched_orders" group by item_id
        ),
        beside as (
            select
                similar.item_id,
                array_agg(
                    coalesce(item.name, 'item') || ' #' || similar.similar_item_id
                    order by similar.rank
                ) as names,
                max(similar.count_invoices) as count_invoices
            from "gold.similar_items" as similar
            left join "silver.items_state" as item
                on similar.similar_item_id = item.id and not item.is_deleted
            where similar.rank <= 3
            group by similar.item_id
        )
        select
            coalesce(item.name, 'item') || ' #' || beside.item_id, coalesce(sold.count_lines, 0),
            beside.names, beside.count_invoices
        from beside
        left join sold on beside.item_id = sold.item_id
        left join "silver.items_state" as item
            on beside.item_id = item.id and not item.is_deleted
        order by 2 desc, beside.item_id limit 10
        """,
        "gold.similar_items",
        "silver.enriched_orders",
        ITEMS,
    )
    yield table(
        "Items shown beside the best sellers",
        {"item": "text", "sold": "number", "shown beside it": "list", "together": "number"},
        rows,
        (
            "Sold: number of order lines. Together: number of invoices with the item and the first "
            "item shown beside it."
        ),
        wide=True,
    )


def recommended_items(lake: Snapshot) -> Iterable[Block]:
    """The ten items that are recommended to the most accounts."""
    rows = lake.rows(
        """
        select
            coalesce(max(item.name), 'item') || ' #' || offer.item_id, count(*) as accounts,
            count(*) filter (where offer.rank = 1) as first
        from "gold.user_recommendations" as offer
        left join "silver.items_state" as item
            on offer.item_id = item.id and not item.is_deleted
        group by offer.item_id order by 2 desc, offer.item_id limit 10
        """,
        "gold.user_recommendations",
        ITEMS,
    )
    yield table(
        "Items recommended most often",
        {"item": "text", "accounts": "number", "in first place": "number"},
        rows,
    )


def best_customers(lake: Snapshot) -> Iterable[Block]:
    """The recommendations for the ten accounts with the highest revenue."""
    rows = lake.rows(
        """
        with best as (
            select customers.account_id, customers.revenue
            from "gold.customers" as customers
            inner join "gold.user_recommendations" as offer
                on customers.account_id = offer.account_id and offer.rank = 1
            order by customers.revenue desc, customers.account_id limit 10
        )
        select
            cast(best.account_id as varchar) as account, max(best.revenue) as revenue,
            array_agg(
                coalesce(item.name, 'item') || ' #' || offer.item_id order by offer.rank
            ) as names
        from best
        inner join "gold.user_recommendations" as offer
            on best.account_id = offer.account_id and offer.rank <= 3
        left join "silver.items_state" as item
            on offer.item_id = item.id and not item.is_deleted
        group by best.account_id order by 2 desc, best.account_id
        """,
        "gold.user_recommendations",
        "gold.customers",
        ITEMS,
    )
    yield table(
        "Recommended to the best customers",
        {"account": "text", "revenue": "number", "items": "list"},
        rows,
        wide=True,
    )


def affinities(lake: Snapshot) -> Iterable[Block]:
    """The ten pairs with the highest lift among the 100 most frequent pairs, each pair once."""
    rows = lake.rows(
        """
        with frequent as (  -- 100 pairs, each in both directions
            select * from "gold.item_affinity"
            order by
                count_invoices desc,
                least(item_id, other_item_id), greatest(item_id, other_item_id)
            limit 200
        ),
        pairs as (
            select
                *,
                row_number() over (
                    partition by least(item_id, other_item_id), greatest(item_id, other_item_id)
                    order by confidence desc, item_id
                ) as place
            from frequent
        )
        select
            coalesce(item.name, 'item') || ' #' || pairs.item_id,
            coalesce(other.name, 'item') || ' #' || pairs.other_item_id,
            pairs.count_invoices, pairs.confidence, pairs.lift
        from pairs
        left join "silver.items_state" as item
            on pairs.item_id = item.id and not item.is_deleted
        left join "silver.items_state" as other
            on pairs.other_item_id = other.id and not other.is_deleted
        where pairs.place = 1
        order by pairs.lift desc, pairs.count_invoices desc, pairs.item_id limit 10
        """,
        "gold.item_affinity",
        ITEMS,
    )
    yield table(
        "Strongest affinities",
        {
            "who buys": "text",
            "also buys": "text",
            "invoices": "number",
            "share": "percent",
            "lift": "decimal",
        },
        rows,
        "The 100 pairs on the most invoices. Share: of the invoices with the first item. Lift: "
        "how many times more often both are on one invoice than by chance.",
    )
