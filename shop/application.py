"""What the shop adds to the lakehouse's commands. `shop/topics.toml` names this module.

The functions are called by `lakehouse` as `lakehouse/application.py` declares them. Each imports
what it needs, so that `lakehouse generate` does not load dbt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lake.tables.lake import Lake


def generate(folder: Path, scale: float, seed: int) -> Mapping[str, int]:
    """Write users.csv, items.csv and orders.csv."""
    from shop.generate import generate_shop

    counts = generate_shop(folder, scale, seed)
    return {"users": counts.users, "items": counts.items, "order lines": counts.orders}


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
