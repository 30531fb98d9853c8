"""Comparison of a lake's gold with the result that plain Python computes from its silver."""

import gold_model
from personal import as_gold_sees
from shop_lake import ShopLake

from lake.settings.settings import LakeSettings
from lake.tables.lake import Lake

OWN = {"cuts", "runs"}


def assert_gold_is_right(lake: ShopLake) -> None:
    lines, users = lake.enriched(), lake.current("users")
    if lake.topics.topics["users"].hashed:
        users = {key: as_gold_sees(user) for key, user in users.items()}
    entries = lake.mart("reward_ledger")
    assert {
        (r["invoice_id"], r["line_item_id"], r["entry"]): (
            r["account_id"],
            r["points"],
            r["reason"],
        )
        for r in entries
    } == gold_model.reward_ledger(lines, users)
    points = lake.mart("reward_points")
    assert {r["account_id"]: (r["points"], r["tier"]) for r in points} == gold_model.reward_points(
        lines, users
    )
    assert {
        r["account_id"]: (r["is_eligible"], r["reason"], r["points_to_go"], r["expires_at"])
        for r in lake.mart("coupon_eligibility")
    } == gold_model.coupons(lines, users)
    assert {
        r["invoice_id"]: (r["account_id"], r["email_address"], r["amount"], r["count_lines"])
        for r in lake.mart("thank_you_mails")
    } == gold_model.thank_you_mails(lines, users)
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row in sorted(lake.mart("similar_items"), key=lambda r: (r["item_id"], r["rank"])):
        entry = (row["similar_item_id"], row["count_invoices"], row["count_shared_traits"])
        found.setdefault(row["item_id"], []).append(entry)
    assert found == gold_model.similar_items(lines.values(), lake.current("items").values())


def published(settings: LakeSettings) -> dict[str, list[str]]:
    """Return the rows of all marts as sorted texts."""
    return {
        name: sorted(map(str, table.log().to_pyarrow_table().to_pylist()))
        for name, table in Lake(settings).tables("gold").items()
        if name not in OWN
    }


def versions(settings: LakeSettings) -> dict[str, int]:
    return {
        name: table.log().version()
        for name, table in Lake(settings).tables("gold").items()
        if name not in OWN
    }
