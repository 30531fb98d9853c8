"""Tests that recommendations on real tables equal those of plain Python and beat chance."""

from collections import defaultdict
from typing import Any

import gold_model
import pytest
from gold_changes import Changes
from planted_shop import ACCOUNTS, FAITH
from shop_lake import ShopLake

from gold.tables import BUILT, last_published
from lake.tables.lake import Lake
from shop.evaluate import evaluate_recommendations


def assert_recommendations_are_right(lake: ShopLake) -> None:
    lines, users, items = lake.enriched(), lake.current("users"), lake.current("items")
    pairs = lake.rows("item_affinity", layer=BUILT)
    affinity = {
        (r["item_id"], r["other_item_id"]): (
            r["count_invoices"],
            r["support"],
            r["confidence"],
            r["lift"],
        )
        for r in pairs
    }
    for r in pairs:
        names = (items[r["item_id"]]["name"], items[r["other_item_id"]]["name"])
        assert (r["item_name"], r["other_item_name"]) == names
    assert affinity == gold_model.item_affinity(lines.values(), items)
    similar = ranked(lake, "similar_items", "item_id", "similar_item_id count_invoices traits")
    assert similar == gold_model.similar_items(lines.values(), items.values())
    recommended = ranked(lake, "user_recommendations", "account_id", "item_id score reason")
    assert recommended == gold_model.user_recommendations(lines, users, items)


def ranked(lake: ShopLake, name: str, of: str, columns: str) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows of a mart by the value of the column `of`, in the order of their ranks."""
    names = columns.replace("traits", "count_shared_traits").split()
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in sorted(lake.table(name, BUILT).collect(), key=lambda row: row["rank"]):
        found[row[of]].append(tuple(row[column] for column in names))
        assert row["rank"] == len(found[row[of]]), row
    return dict(found)


def test_recommendations_follow_changes_of_orders_items_and_users(
    changes: Changes, shop_lake: ShopLake
) -> None:
    assert_recommendations_are_right(shop_lake)
    items = {row["item_id"] for row in shop_lake.rows("item_affinity", layer=BUILT)}
    assert changes.fates["late"] in items
    assert changes.fates["deleted"] not in items
    advised = {
        row["account_id"]: row["reason"]
        for row in shop_lake.rows("user_recommendations", layer=BUILT)
    }
    assert not {changes.fates["merged"], changes.fates["closed"]} & advised.keys()


@pytest.mark.nightly
def test_items_bought_together_are_found_and_beat_popularity_and_chance(
    changes: Changes, shop_lake: ShopLake
) -> None:
    before = last_published(Lake(shop_lake.settings))
    ours, popular, anything = evaluate_recommendations(Lake(shop_lake.settings))
    assert [q.recommender for q in (ours, popular, anything)] == [
        "user_recommendations",
        "popularity",
        "random",
    ]
    assert ours.accounts == popular.accounts == anything.accounts >= 0.9 * ACCOUNTS
    assert ours.hit_rate > 0.7 * FAITH
    for other in (popular, anything):
        assert ours.hit_rate > 2 * other.hit_rate
        assert ours.reciprocal_rank > 2 * other.reciprocal_rank

    assert not (shop_lake.settings.lake_dir / "gold_build_evaluation").exists()
    assert last_published(Lake(shop_lake.settings)) == before
    assert_recommendations_are_right(shop_lake)
